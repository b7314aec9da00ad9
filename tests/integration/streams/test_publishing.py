"""The publishing script and what readers see of it, on a real Redis."""

import pytest

from support.redis_server import RedisServer
from support.stream_factories import (
    LOG,
    NAMESPACE,
    RUN,
    THREAD,
    a_delta,
    an_assignment,
    an_event,
    grant,
    whole_stream,
)
from treadle_api.names import stream_key
from treadle_store.streams import MAX_LENGTH, Publisher, Window, Wire, WireFrame, WireUnavailable, open_reader

STREAM = stream_key(NAMESPACE, THREAD, LOG)


async def frames(server: RedisServer) -> tuple[WireFrame, ...]:
    async with open_reader(server.admin_url, max_connections=1) as reader:
        return await whole_stream(reader, STREAM)


async def positions(server: RedisServer) -> list[tuple[int, int, str]]:
    return [(frame.seq, frame.n, frame.type) for frame in await frames(server)]


async def test_events_keep_their_seq_and_deltas_follow_them(redis_server: RedisServer, wire: Wire) -> None:
    await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment()) as publisher:
        assert await publisher.publish([an_event(57), a_delta(57, "a"), a_delta(57, "b"), an_event(58)])
    assert await positions(redis_server) == [
        (57, 0, "message"),
        (57, 1, "token"),
        (57, 2, "token"),
        (58, 0, "message"),
    ]


@pytest.mark.req("R20")
async def test_a_publisher_whose_token_was_replaced_is_dropped(redis_server: RedisServer, wire: Wire) -> None:
    old, new = an_assignment(1), an_assignment(2)
    await grant(wire, old)
    async with Publisher(redis_server.address, old) as stale, Publisher(redis_server.address, new) as fresh:
        assert await stale.publish([an_event(1)])
        await grant(wire, new)
        with pytest.raises(WireUnavailable):
            await stale.publish([an_event(2)])
        assert await fresh.publish([an_event(2, token=2)])
    assert await positions(redis_server) == [(1, 0, "message"), (2, 0, "message")]


@pytest.mark.req("R20")
async def test_the_script_alone_drops_a_stale_publisher_that_still_has_a_user(
    redis_server: RedisServer, wire: Wire
) -> None:
    await grant(wire, an_assignment(1))
    async with Publisher(redis_server.address, an_assignment(1)) as stale:
        assert await stale.publish([an_event(1)])
        await redis_server.call("SET", f"treadle:{NAMESPACE}:{THREAD}:token", 2)
        assert not await stale.publish([an_event(2)])
    assert await positions(redis_server) == [(1, 0, "message")]


async def test_after_a_takeover_deltas_go_behind_those_of_the_lost_attempt(
    redis_server: RedisServer, wire: Wire
) -> None:
    await grant(wire, an_assignment(1))
    async with Publisher(redis_server.address, an_assignment(1)) as first:
        await first.publish([an_event(57), *(a_delta(57) for _ in range(9))])
    await grant(wire, an_assignment(2))
    async with Publisher(redis_server.address, an_assignment(2)) as second:
        assert await second.publish([a_delta(57, token=2)])
    assert (await positions(redis_server))[-2:] == [(57, 9, "token"), (57, 10, "token")]


async def test_a_repeated_batch_adds_no_event_twice(redis_server: RedisServer, wire: Wire) -> None:
    await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment()) as publisher:
        await publisher.publish([an_event(1), an_event(2)])
        await publisher.publish([an_event(1), an_event(2), an_event(3)])
    assert [seq for seq, _, _ in await positions(redis_server)] == [1, 2, 3]


async def test_a_delta_never_takes_the_place_of_an_event_that_is_not_on_the_wire(
    redis_server: RedisServer, wire: Wire
) -> None:
    await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment()) as publisher:
        await publisher.publish([a_delta(57, "a"), an_event(58)])
    assert await positions(redis_server) == [(57, 1, "token"), (58, 0, "message")]


async def test_a_late_delta_goes_behind_the_newest_entry(redis_server: RedisServer, wire: Wire) -> None:
    await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment()) as publisher:
        await publisher.publish([an_event(58), a_delta(57, "late")])
    assert await positions(redis_server) == [(58, 0, "message"), (58, 1, "token")]


async def test_a_stream_is_bounded_and_expires(redis_server: RedisServer, wire: Wire) -> None:
    await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment()) as publisher:
        await publisher.publish([an_event(seq) for seq in range(1, MAX_LENGTH + 501)])
    kept = await positions(redis_server)
    assert MAX_LENGTH <= len(kept) <= MAX_LENGTH + 200
    assert kept[-1][0] == MAX_LENGTH + 500
    assert 86_000 < await redis_server.call("TTL", STREAM) <= 86_400


async def test_an_event_too_large_for_a_frame_travels_as_a_reference(
    redis_server: RedisServer, wire: Wire
) -> None:
    await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment()) as publisher:
        await publisher.publish([an_event(1, text="x" * 100_000), an_event(2, text="small")])
    assert [frame.data for frame in await frames(redis_server)] == [None, {"text": "small"}]


@pytest.mark.req("R47")
async def test_deltas_lost_while_redis_was_away_are_said_to_be_lost(
    redis_server: RedisServer, wire: Wire
) -> None:
    await grant(wire, an_assignment())
    now = 100.0
    async with Publisher(redis_server.address, an_assignment(), clock=lambda: now) as publisher:
        await publisher.publish([an_event(1)])
        await redis_server.stop()
        with pytest.raises(WireUnavailable):
            await publisher.publish([a_delta(1, "a"), a_delta(1, "b")])
        with pytest.raises(WireUnavailable, match="waiting to reconnect"):
            await publisher.publish([a_delta(1, "c")])
        await redis_server.start()
        await grant(wire, an_assignment())
        now += 1.0
        assert await publisher.publish([an_event(2)])
    assert [(frame.type, frame.data) for frame in await frames(redis_server)] == [
        ("gap", {"reason": "wire_unavailable", "lost": 3}),
        ("message", {}),
    ]


async def test_the_end_frame_goes_behind_everything(redis_server: RedisServer, wire: Wire) -> None:
    await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment()) as publisher:
        await publisher.publish([an_event(7), a_delta(7)])
        await publisher.publish_end("success")
    own = an_assignment().capability
    await wire.publish_end(NAMESPACE, THREAD, LOG, RUN, own.token, "success")
    assert (await positions(redis_server))[2:] == [(7, 2, "end"), (7, 3, "end")]


async def test_a_position_is_found_in_the_window_as_long_as_an_entry_at_or_before_it_is(
    redis_server: RedisServer, wire: Wire
) -> None:
    await grant(wire, an_assignment())
    async with (
        Publisher(redis_server.address, an_assignment()) as publisher,
        open_reader(redis_server.admin_url, max_connections=2) as reader,
    ):
        assert await reader.locate(STREAM, (5, 0)) == Window(None, None)
        await publisher.publish([an_event(5), a_delta(5), an_event(6)])
        assert await reader.locate(STREAM, (4, 9)) == Window(None, (5, 0))
        assert await reader.locate(STREAM, (5, 7)) == Window((5, 1), None)
        assert not await reader.wait(STREAM, (6, 0), block_ms=10)
        assert await reader.wait(STREAM, (5, 1), block_ms=10)
        page = await reader.page(STREAM, (5, 1), count=10)
        assert page is not None
        assert [(frame.seq, frame.n) for frame in page.frames] == [(6, 0)]
        await redis_server.call("XTRIM", STREAM, "MINID", "6-0")
        assert await reader.page(STREAM, (5, 1), count=10) is None
