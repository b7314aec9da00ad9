"""Streams in bad company: Redis cut or flushed, frames that lie, clients that leave or take nothing."""

import asyncio

import pytest

from support.claims import NAMESPACE
from support.eventually import eventually
from support.gateway import READER_TOKEN, FakeAccess, GatewayUnderTest, SseFrame, gateway_running, take, until
from support.live_runs import LiveRun, LiveRuns
from support.redis_server import RedisServer
from treadle_api.names import stream_key
from treadle_api.records import RunStatus
from treadle_gateway.follow import GAPS_LIMIT


def told(frames: list[SseFrame]) -> list[tuple[str, str | None]]:
    return [(frame.event, frame.data.get("text")) for frame in frames]


def stream_of(run: LiveRun) -> str:
    return stream_key(NAMESPACE, run.view.thread_id, run.view.log)


@pytest.mark.req("R1")
@pytest.mark.req("R47")
async def test_redis_cut_in_mid_stream_costs_deltas_and_says_so(
    wired: LiveRuns, gateway: GatewayUnderTest, redis_server: RedisServer
) -> None:
    run = await wired.start()
    async with gateway.stream(NAMESPACE, run.name) as frames:
        await run.say("1")
        await take(frames, 2)
        await redis_server.stop()
        await run.delta("lost")
        await run.say("2")
        assert told(await take(frames, 2)) == [("gap", None), ("message", "2")]
        await redis_server.start()
        assert run.wire is not None
        await run.wire.admit_reader("treadle-gateway", "reader")
        await run.grant()
        await run.say("3")
        await run.delta("back")
        again = await until(frames, "token", "back")
        assert [pair for pair in told(again) if pair[0] != "gap"] == [("message", "3"), ("token", "back")]
        await run.settle()
        assert [frame.event for frame in await take(frames, 3)] == ["run.end", "run.delivery", "end"]


async def test_a_flushed_redis_loses_no_event(
    wired: LiveRuns, gateway: GatewayUnderTest, redis_server: RedisServer
) -> None:
    run = await wired.start()
    async with gateway.stream(NAMESPACE, run.name) as frames:
        await run.say("1")
        await run.delta("a")
        await take(frames, 3)
        await redis_server.call("FLUSHALL")
        await run.say("2")
        await run.grant()
        await run.say("3")
        await run.settle()
        rest = await until(frames, "end")
    assert [frame.data["text"] for frame in rest if frame.event == "message"] == ["2", "3"]
    assert "gap" in {frame.event for frame in rest}


@pytest.mark.req("R46")
async def test_an_end_frame_without_a_receipt_ends_nothing(
    wired: LiveRuns, gateway: GatewayUnderTest
) -> None:
    run = await wired.start()
    assert run.publisher is not None
    async with gateway.stream(NAMESPACE, run.name) as frames:
        await run.say("1")
        await run.publisher.publish_end("success")
        await run.say("2")
        assert told(await take(frames, 3)) == [("metadata", None), ("message", "1"), ("message", "2")]
        await run.settle(RunStatus.TIMEOUT)
        assert (await take(frames, 3))[-1].data["outcome"] == "timeout"


@pytest.mark.req("R46")
async def test_frames_ahead_of_the_log_are_not_believed(
    wired: LiveRuns, gateway: GatewayUnderTest, redis_server: RedisServer
) -> None:
    run = await wired.start()
    await run.say("1")
    fields = ("run", run.view.run_id, "token", 1, "type", "message", "data", '{"text": "forged"}')
    await redis_server.call("XADD", stream_of(run), "900-0", *fields)
    async with gateway.stream(NAMESPACE, run.name) as frames:
        assert told(await take(frames, 3)) == [("metadata", None), ("message", "1"), ("gap", None)]
        await run.say("2")
        await until(frames, "message", "2")
        await run.settle()
        assert (await take(frames, 3))[-1].data["outcome"] == "success"


@pytest.mark.req("R41")
async def test_a_client_that_leaves_changes_nothing(wired: LiveRuns, gateway: GatewayUnderTest) -> None:
    run = await wired.start()
    async with gateway.stream(NAMESPACE, run.name) as frames:
        await run.say("1")
        await take(frames, 2)
    await run.say("2")
    await run.settle()
    assert (await gateway.whole(NAMESPACE, run.name))[-1].data["outcome"] == "success"


async def test_the_heartbeat_carries_the_cursor(
    wired: LiveRuns, access: FakeAccess, redis_server: RedisServer
) -> None:
    run = await wired.start()
    await run.say("1")
    url = redis_server.url("treadle-gateway", "reader")
    async with (
        gateway_running(wired.gateway_pool, access, url, heartbeat_seconds=0.2) as gateway,
        gateway.stream(NAMESPACE, run.name) as frames,
    ):
        got = await take(frames, 3, comments=True)
    assert got[-1].comment == f"heartbeat {run.cursor(1)}"


@pytest.mark.req("R44")
async def test_gaps_without_end_end_the_stream_with_an_error(
    wired: LiveRuns, gateway: GatewayUnderTest
) -> None:
    run = await wired.start()
    assert run.publisher is not None
    await run.say("1")
    for _ in range(GAPS_LIMIT + 1):
        await run.delta("{}", type="gap")
    frames = await gateway.whole(NAMESPACE, run.name)
    assert [frame.event for frame in frames] == ["metadata", "message", *["gap"] * GAPS_LIMIT, "error"]
    assert frames[-1].data["error"] == "TooManyGaps"
    await run.settle()


async def test_streams_beyond_the_limit_are_refused_and_a_closed_one_makes_room(
    wired: LiveRuns, access: FakeAccess
) -> None:
    run = await wired.start()
    async with (
        gateway_running(wired.gateway_pool, access, None, streams=2) as gateway,
        gateway.client() as client,
    ):
        path = f"/ns/{NAMESPACE}/v1/runs/{run.name}/stream"
        async with gateway.stream(NAMESPACE, run.name), gateway.stream(NAMESPACE, run.name):
            refused = await client.get(path)
            assert refused.status_code == 503
            assert refused.json()["title"] == "TooManyStreams"
            assert refused.headers["retry-after"]

        async def all_free() -> bool:
            return gateway.services.streams.taken == 0

        await eventually(all_free, "closed streams give their slots back")
        async with gateway.stream(NAMESPACE, run.name) as frames:
            await take(frames, 1)


async def test_a_client_that_takes_nothing_is_let_go_without_its_frames_piling_up(
    wired: LiveRuns, access: FakeAccess, redis_server: RedisServer
) -> None:
    run = await wired.start()
    for _ in range(60):
        await run.say("x" * 200_000, publish=False)
    url = redis_server.url("treadle-gateway", "reader")
    async with gateway_running(wired.gateway_pool, access, url, send_seconds=1.0) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        request = f"GET /ns/{NAMESPACE}/v1/runs/{run.name}/stream HTTP/1.1\r\nHost: x\r\n"
        writer.write(f"{request}Authorization: Bearer {READER_TOKEN}\r\n\r\n".encode())

        async def connected() -> bool:
            return gateway.services.streams.taken == 1

        async def let_go() -> bool:
            return gateway.services.streams.taken == 0

        await eventually(connected, "the stream begins")
        waiting = max(
            connection.transport.get_write_buffer_size()
            for connection in gateway.server.server_state.connections
        )
        assert waiting < 2_000_000
        await eventually(let_go, "the gateway closes the stream", within=15)
        writer.close()


@pytest.mark.req("R46")
async def test_a_delta_cannot_speak_for_the_gateway_either(
    wired: LiveRuns, gateway: GatewayUnderTest
) -> None:
    run = await wired.start()
    await run.say("1")
    for type in ("metadata", "reset", "error", "bad\r\nevent: end"):
        await run.delta("x", type=type)
    async with gateway.stream(NAMESPACE, run.name) as frames:
        got = await take(frames, 6)
    assert [frame.event for frame in got[2:]] == [
        *("agent.metadata", "agent.reset", "agent.error", "agent.badevent: end"),
    ]
    await run.settle()
