"""Redis may vanish, connections to Postgres may be cut: the run ends with the same receipt."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.agent_process import Harness, Run
from support.lease_server import LeaseServer
from support.redis_server import RedisServer
from support.runs import check_the_log, outcome
from support.scripts import NOTES, configuration, review
from support.stores import Store
from treadle_api.contract import ENV_STORE_DSN, ExitCode
from treadle_api.reasons import Reason
from treadle_store.streams import open_wire

_OF_THIS_RUN = ("run", "thread", "checkpoint", "message_id", "stream_degraded", "token")


@pytest.fixture
async def redis(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedisServer]:
    async with RedisServer.running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def own_redis(
    redis: RedisServer, store: Store, leases: LeaseServer, namespace: str, tmp_path: Path
) -> AsyncIterator[Harness]:
    """A harness whose Redis the test may kill."""
    async with open_wire(redis.admin_url) as wire:
        operator, admin = await store.pool("operator"), await store.connect("admin")
        made = Harness(operator, store, admin, leases, tmp_path, namespace, wire, redis.admin_url)
        try:
            yield made
        finally:
            await made.close()


async def receipt(harness: Harness, run: Run) -> dict[str, Any]:
    payload = (await harness.settled(run)).payload
    return {name: value for name, value in payload.items() if name not in _OF_THIS_RUN}


@pytest.mark.timeout(300)
@pytest.mark.req("R1", "R41")
async def test_redis_killed_in_mid_run_changes_no_fact(own_redis: Harness, redis: RedisServer) -> None:
    first = await own_redis.admit(configuration(review()), files=NOTES)
    assert await own_redis.drive(first) == 1
    second = await own_redis.admit(configuration(review(sleep=1.0)), files=NOTES)
    pod = await own_redis.attempt(second)
    await own_redis.log_has(second, "todo")
    await redis.stop()
    assert await pod.ended() == ExitCode.ANSWERED, pod.log
    assert await receipt(own_redis, second) == await receipt(own_redis, first)
    assert (await own_redis.settled(second)).payload["stream_degraded"] is True
    assert await outcome(own_redis, second) == await outcome(own_redis, first)
    await check_the_log(own_redis, second)


@pytest.mark.timeout(300)
@pytest.mark.req("R1")
async def test_a_run_starts_and_ends_without_any_redis(own_redis: Harness, redis: RedisServer) -> None:
    await redis.stop()
    run = await own_redis.admit(configuration(review()), files=NOTES)
    assert await own_redis.drive(run) == 1
    await check_the_log(own_redis, run)


@pytest.mark.timeout(300)
@pytest.mark.req("R41", "R56")
async def test_every_event_frame_is_a_row_of_the_log(harness: Harness) -> None:
    run = await harness.admit(configuration(review()), files=NOTES)
    assert await harness.drive(run) == 1
    log = {event.seq: event for event in await harness.log(run)}
    frames = await harness.frames(run)
    shown = {frame.seq: frame for frame in frames if frame.n == 0}
    # run.end and run.delivery are told by the end frame: readers take them from the log.
    assert set(shown) == set(range(1, len(log) - 1))
    assert all(shown[seq].type == log[seq].type for seq in shown)
    assert all(frame.data == log[seq].payload for seq, frame in shown.items())
    words = [frame.data["content"] for frame in frames if frame.type == "messages" and frame.data]
    assert "".join(word for word in words if word).startswith("I plan first.")
    assert frames[-1].type == "end"
    updates = [frame for frame in frames if frame.type == "updates" and frame.data]
    assert updates
    committed = {event.payload["id"] for event in log.values() if event.type == "message"}
    state = {message.id for message in (await harness.state(run))["messages"]}
    assert committed == state
    for frame in updates:
        for update in frame.data["update"].values():  # type: ignore[index]
            for message in (update or {}).get("messages", []):
                assert message["id"] in committed, (frame, list(log.values()))


@pytest.mark.timeout(300)
@pytest.mark.req("R50", "R95")
async def test_connections_cut_in_mid_run_cost_no_fact_and_no_attempt(harness: Harness) -> None:
    run = await harness.admit(configuration(review(sleep=1.0)), files=NOTES)
    pod = await harness.attempt(run)
    await harness.log_has(run, "run.input")
    cuts = 0
    for events in (8, 14, 20, 26, 32, 40):
        await harness.log_reaches(run, events)
        cuts += await harness.admin.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name LIKE 'treadle-agent/%' AND datname = current_database()"
        )
    assert await pod.ended() == ExitCode.ANSWERED, pod.log
    assert cuts > 3
    await check_the_log(harness, run)
    undisturbed = await harness.admit(configuration(review()), files=NOTES)
    assert await harness.drive(undisturbed) == 1
    assert await outcome(harness, run) == await outcome(harness, undisturbed)


@pytest.mark.timeout(120)
async def test_a_store_that_is_away_at_the_start_is_told_and_tried_again(harness: Harness) -> None:
    run = await harness.admit(configuration(review()), files=NOTES)
    assigned = await harness.assign(run)
    dsn = "postgresql://nobody:secret-of-the-test@127.0.0.1:1/none"
    pod = await harness.start(assigned, environment={ENV_STORE_DSN: dsn})
    assert await pod.ended() == ExitCode.TRY_AGAIN
    assert pod.termination["reason"] == Reason.STORE_UNAVAILABLE
    assert "secret-of-the-test" not in pod.log + str(pod.termination)
    again = await harness.start(assigned)
    assert await again.ended() == ExitCode.ANSWERED, again.log
