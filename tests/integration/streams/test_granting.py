"""Grants, takeovers and restarts as the operator drives them."""

import asyncio

import pytest

from support.redis_server import RedisServer
from support.stream_factories import NAMESPACE, RUN, THREAD, an_assignment, an_event, grant
from treadle_api.names import nudge_channel
from treadle_api.records import FencingToken, ThreadID
from treadle_store.streams import Nudge, Publisher, Wire, WireUnavailable, open_wire


async def test_granting_again_changes_nothing_for_a_connected_publisher(
    redis_server: RedisServer, wire: Wire
) -> None:
    assert await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment()) as publisher:
        await publisher.publish([an_event(1)])
        assert await grant(wire, an_assignment())
        assert await publisher.publish([an_event(2)])


async def test_a_grant_that_comes_too_late_leaves_the_newer_one_alone(
    redis_server: RedisServer, wire: Wire
) -> None:
    assert await grant(wire, an_assignment(2))
    assert not await grant(wire, an_assignment(1))
    assert await wire.publishers() == [(THREAD, 2)]
    async with Publisher(redis_server.address, an_assignment(2)) as publisher:
        assert await publisher.publish([an_event(1, token=2)])


async def test_two_operators_granting_at_once_leave_one_publisher(redis_server: RedisServer) -> None:
    async with open_wire(redis_server.admin_url) as one, open_wire(redis_server.admin_url) as two:
        for token in range(1, 101, 2):
            await asyncio.gather(grant(one, an_assignment(token)), grant(two, an_assignment(token + 1)))
            assert await one.publishers() == [(THREAD, token + 1)]


async def test_revoking_ends_the_user_and_lets_the_token_expire(
    redis_server: RedisServer, wire: Wire
) -> None:
    await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment()) as publisher:
        await publisher.publish([an_event(1)])
        await wire.revoke(NAMESPACE, THREAD, FencingToken(1))
        with pytest.raises(WireUnavailable):
            await publisher.publish([an_event(2)])
    assert await wire.publishers() == []
    assert await redis_server.call("TTL", f"treadle:{NAMESPACE}:{THREAD}:token") > 0
    await wire.revoke(NAMESPACE, THREAD, FencingToken(1))
    assert await grant(wire, an_assignment(2))
    assert await redis_server.call("TTL", f"treadle:{NAMESPACE}:{THREAD}:token") == -1


async def test_a_restarted_redis_serves_again_once_the_operator_granted_again(
    redis_server: RedisServer, wire: Wire
) -> None:
    now = 0.0
    await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment(), clock=lambda: now) as publisher:
        await publisher.publish([an_event(1)])
        await redis_server.restart()
        with pytest.raises(WireUnavailable):
            await publisher.publish([an_event(2)])
        assert await grant(wire, an_assignment())
        now += 60
        assert await publisher.publish([an_event(2)])


async def test_flushed_data_and_scripts_come_back_with_the_next_grant(
    redis_server: RedisServer, wire: Wire
) -> None:
    now = 0.0
    await grant(wire, an_assignment())
    async with Publisher(redis_server.address, an_assignment(), clock=lambda: now) as publisher:
        await redis_server.call("FLUSHALL")
        with pytest.raises(WireUnavailable, match="not granted this token"):
            await publisher.publish([an_event(1)])
        await redis_server.call("SCRIPT FLUSH")
        now += 60
        with pytest.raises(WireUnavailable, match="NoScript"):
            await publisher.publish([an_event(1)])
        await grant(wire, an_assignment())
        now += 60
        assert await publisher.publish([an_event(1)])


async def test_without_redis_every_call_ends_within_its_deadline(
    redis_server: RedisServer, wire: Wire
) -> None:
    await redis_server.stop()
    async with Publisher(redis_server.address, an_assignment()) as publisher, asyncio.timeout(20):
        for call in (
            grant(wire, an_assignment()),
            wire.revoke(NAMESPACE, THREAD, FencingToken(1)),
            wire.publishers(),
            wire.nudge(NAMESPACE, RUN, "x"),
            publisher.publish([an_event(1)]),
            publisher.nudge("x"),
        ):
            with pytest.raises(WireUnavailable):
                await call


async def test_a_name_that_could_act_as_a_pattern_is_refused(wire: Wire) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        await wire.grant(NAMESPACE, ThreadID("*"), "1i1", FencingToken(1), b"k")


async def test_nudges_arrive_and_a_restart_is_told(redis_server: RedisServer, wire: Wire) -> None:
    nudges = wire.nudges()
    async with asyncio.timeout(20):
        assert (await anext(nudges)).run_id is None
        await grant(wire, an_assignment())
        async with Publisher(redis_server.address, an_assignment()) as publisher:
            await publisher.nudge("settled")
        assert await anext(nudges) == Nudge(NAMESPACE, RUN, "settled")
        await redis_server.restart()
        assert (await anext(nudges)).run_id is None
        await wire.nudge(NAMESPACE, RUN, "again")
        assert await anext(nudges) == Nudge(NAMESPACE, RUN, "again")
    await nudges.aclose()


async def test_nudges_of_many_namespaces_arrive_over_one_connection(wire: Wire) -> None:
    ours = [f"team-{n}" for n in range(8)]
    nudges = wire.nudges(ours)
    async with asyncio.timeout(20):
        assert (await anext(nudges)).run_id is None
        for namespace in (*ours, "somebody-elses"):
            await wire.nudge(namespace, RUN, "settled")
        assert [await anext(nudges) for _ in ours] == [Nudge(name, RUN, "settled") for name in ours]
        await wire.nudge(ours[0], RUN, "again")
        assert await anext(nudges) == Nudge(ours[0], RUN, "again")
    await nudges.aclose()


async def test_what_is_no_nudge_is_passed_over(redis_server: RedisServer, wire: Wire) -> None:
    nudges = wire.nudges([NAMESPACE])
    async with asyncio.timeout(20):
        await anext(nudges)
        for junk in (
            b"\xff",
            "[]",
            "{}",
            '{"run": 1, "what": 2}',
            "[" * 500,
            '{"run":"' + "x" * 600 + '","what":""}',
        ):
            await redis_server.call("PUBLISH", nudge_channel(NAMESPACE), junk)
        await wire.nudge(NAMESPACE, RUN, "real")
        assert await anext(nudges) == Nudge(NAMESPACE, RUN, "real")
    await nudges.aclose()
