"""Streams with Redis: deltas, cursors, gaps, replicas, takeovers."""

import pytest

from support.claims import NAMESPACE
from support.gateway import FakeAccess, GatewayUnderTest, SseFrame, gateway_running, take
from support.live_runs import LiveRun, LiveRuns
from support.redis_server import RedisServer
from treadle_api.names import stream_key


def told(frames: list[SseFrame]) -> list[tuple[str, str | None]]:
    return [(frame.event, frame.data.get("text")) for frame in frames]


def stream_of(run: LiveRun) -> str:
    return stream_key(NAMESPACE, run.view.thread_id, run.view.log)


@pytest.mark.req("R41")
async def test_events_and_deltas_arrive_in_one_order_and_the_end_last(
    wired: LiveRuns, gateway: GatewayUnderTest
) -> None:
    run = await wired.start()
    async with gateway.stream(NAMESPACE, run.name) as frames:
        await take(frames, 1)
        await run.say("one")
        await run.delta("tw")
        await run.delta("o")
        await run.say("two")
        await run.settle()
        got = await take(frames, 7)
    assert told(got[:4]) == [("message", "one"), ("token", "tw"), ("token", "o"), ("message", "two")]
    assert [frame.event for frame in got[4:]] == ["run.end", "run.delivery", "end"]
    assert [frame.id for frame in got[:4]] == [
        run.cursor(1),
        run.cursor(1, 1),
        run.cursor(1, 2),
        run.cursor(2),
    ]


@pytest.mark.req("R42")
async def test_a_cursor_in_the_window_continues_between_two_deltas_on_any_replica(
    wired: LiveRuns, gateway: GatewayUnderTest, access: FakeAccess, redis_server: RedisServer
) -> None:
    run = await wired.start()
    await run.say("one")
    for letter in "abc":
        await run.delta(letter)
    url = redis_server.url("treadle-gateway", "reader")
    async with gateway_running(wired.gateway_pool, access, url) as replica:
        for one in (gateway, replica):
            async with one.stream(NAMESPACE, run.name, after=run.cursor(1, 1)) as frames:
                assert told(await take(frames, 3)) == [("metadata", None), ("token", "b"), ("token", "c")]


@pytest.mark.req("R42")
async def test_every_reconnect_at_every_position_gives_exactly_what_follows(
    wired: LiveRuns, gateway: GatewayUnderTest
) -> None:
    run = await wired.start()
    for number in range(1, 6):
        await run.say(f"event {number}", publish=number != 3)
        for letter in "xy":
            await run.delta(f"{number}{letter}")
    await run.settle()
    whole = await gateway.whole(NAMESPACE, run.name)
    for place, frame in enumerate(whole[1:-1], start=1):
        again = await gateway.whole(NAMESPACE, run.name, after=frame.id)
        assert again[1:] == whole[place + 1 :], frame.id


async def test_events_that_never_reached_the_wire_are_filled_in_from_the_log(
    wired: LiveRuns, gateway: GatewayUnderTest
) -> None:
    run = await wired.start()
    await run.say("1")
    await run.say("2", publish=False)
    await run.say("3", publish=False)
    await run.delta("d")
    await run.say("4")
    async with gateway.stream(NAMESPACE, run.name) as frames:
        got = await take(frames, 6)
    assert told(got[1:]) == [
        ("message", "1"),
        ("message", "2"),
        ("message", "3"),
        ("token", "d"),
        ("message", "4"),
    ]


async def test_an_event_whose_publisher_died_is_found_by_the_slow_poll(
    wired: LiveRuns, gateway: GatewayUnderTest
) -> None:
    run = await wired.start()
    await run.say("1")
    async with gateway.stream(NAMESPACE, run.name) as frames:
        await take(frames, 2)
        await run.say("2", publish=False)
        assert told(await take(frames, 1)) == [("message", "2")]


async def test_an_event_too_large_for_the_wire_is_taken_from_the_log(
    wired: LiveRuns, gateway: GatewayUnderTest
) -> None:
    run = await wired.start()
    await run.say("x" * 100_000)
    async with gateway.stream(NAMESPACE, run.name) as frames:
        assert len((await take(frames, 2))[1].data["text"]) == 100_000


@pytest.mark.req("R43")
async def test_a_cursor_older_than_the_window_gets_the_events_then_the_gap_then_the_tail(
    wired: LiveRuns, gateway: GatewayUnderTest, redis_server: RedisServer
) -> None:
    run = await wired.start()
    for number in range(1, 5):
        await run.say(str(number))
        await run.delta(f"after {number}")
    await redis_server.call("XTRIM", stream_of(run), "MINID", "3-1")
    async with gateway.stream(NAMESPACE, run.name, after=run.cursor(1, 0)) as frames:
        got = await take(frames, 7)
    assert told(got) == [
        *(("metadata", None), ("message", "2"), ("message", "3"), ("gap", None)),
        *(("token", "after 3"), ("message", "4"), ("token", "after 4")),
    ]
    assert got[3].data == {"reason": "trimmed", "after": run.cursor(1), "before": run.cursor(3, 1)}
    async with gateway.stream(NAMESPACE, run.name, after=got[3].id) as frames:
        again = await take(frames, 4)
    assert told(again[1:]) == told(got[4:])


async def test_a_client_without_a_cursor_on_a_trimmed_stream_gets_every_event(
    wired: LiveRuns, gateway: GatewayUnderTest, redis_server: RedisServer
) -> None:
    run = await wired.start()
    for number in range(1, 5):
        await run.say(str(number))
        await run.delta(f"after {number}")
    await redis_server.call("XTRIM", stream_of(run), "MINID", "4-0")
    async with gateway.stream(NAMESPACE, run.name, after="-1") as frames:
        got = await take(frames, 7)
    assert told(got) == [
        *(("metadata", None), ("message", "1"), ("message", "2"), ("message", "3"), ("gap", None)),
        *(("message", "4"), ("token", "after 4")),
    ]


@pytest.mark.parametrize(("seq", "log", "reason"), [(99, None, "ahead_of_log"), (1, "7i1", "other_log")])
async def test_a_cursor_of_no_position_in_this_log_is_reset(
    wired: LiveRuns, gateway: GatewayUnderTest, seq: int, log: str | None, reason: str
) -> None:
    run = await wired.start()
    await run.say("1")
    cursor = f"{log or run.view.log}.{seq}-0"
    async with gateway.stream(NAMESPACE, run.name, after=cursor) as frames:
        got = await take(frames, 3)
    assert told(got) == [("metadata", None), ("reset", None), ("message", "1")]
    assert got[1].data == {"reason": reason, "requested": cursor}


async def test_after_a_takeover_the_next_attempt_announces_itself_in_its_place(
    wired: LiveRuns, gateway: GatewayUnderTest
) -> None:
    run = await wired.start()
    async with gateway.stream(NAMESPACE, run.name) as frames:
        assert (await take(frames, 1))[0].data["attempt"] == 1
        await run.say("1")
        await run.delta("lost")
        await take(frames, 2)
        await run.take_over()
        await run.delta("again")
        await run.say("2")
        got = await take(frames, 3)
    assert told(got) == [("metadata", None), ("token", "again"), ("message", "2")]
    assert got[0].data["attempt"] == 2
