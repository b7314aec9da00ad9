"""Kill the operator between any two steps: its successor finds what was done and does the rest, once."""

import asyncio
import signal

import pytest

from support.eventually import eventually
from support.operator_process import OperatorProcess
from support.operator_world import OperatorWorld

BEFORE_THE_POD_RUNS = [
    "after_finalizer",
    "after_register",
    "after_admit",
    "after_assign",
    "after_grant",
    "after_lease",
    "after_pod",
    "before_status",
    "after_status",
]


@pytest.mark.req("R26")
@pytest.mark.parametrize("point", BEFORE_THE_POD_RUNS)
async def test_a_start_that_was_cut_off_is_finished_with_the_same_attempt(
    world: OperatorWorld, point: str
) -> None:
    await world.operator.start(ready=False, TREADLE_FAILPOINTS=f"{point}=exit", TREADLE_LEADER_LEASE="")
    await world.apply(world.agent_object(), world.run_object())
    assert await world.operator.ended() == -signal.SIGKILL
    await world.operator.start(TREADLE_LEADER_LEASE="")
    await world.finish("sales-a1")
    done = await world.reaches("sales", "Succeeded")
    record = await world.record("sales")
    assert (record.attempt, done["attempt"]) == (1, 1)
    assert [pod["metadata"]["name"] for pod in await world.pods()] == ["sales-a1"]
    receipts = await world.reader.fetchval("SELECT count(*) FROM treadle.receipts")
    assert receipts == 1


@pytest.mark.req("R26")
@pytest.mark.parametrize("point", ["after_settle", "after_cleanup"])
async def test_a_deletion_that_was_cut_off_is_finished(world: OperatorWorld, point: str) -> None:
    await world.operator.start(TREADLE_FAILPOINTS=f"{point}=exit", TREADLE_LEADER_LEASE="")
    await world.apply(world.agent_object(), world.run_object())
    agent = await world.agent("sales-a1")
    await agent.claim()
    uid = agent.assignment.capability.run_id if agent.assignment else None
    await world.cluster.kubectl("delete", "run", "sales", "--wait=false", namespace=world.namespace)
    if point == "after_cleanup":
        await world.node.removes(world.namespace, "sales-a1")
    assert await world.operator.ended() == -signal.SIGKILL
    await world.operator.start(TREADLE_LEADER_LEASE="")
    await world.node.removes(world.namespace, "sales-a1")
    await world.is_gone("sales")
    rows = await world.reader.fetch("SELECT status FROM treadle.runs WHERE run_id = $1", uid)
    assert [row["status"] for row in rows] == ["cancelled"]
    assert await world.reader.fetchval("SELECT count(*) FROM treadle.receipts") == 1


@pytest.mark.req("R26")
@pytest.mark.parametrize("point", ["after_cleanup", "after_end"])
async def test_an_end_that_was_cut_off_is_shown_and_cleaned_up(world: OperatorWorld, point: str) -> None:
    await world.operator.start(TREADLE_FAILPOINTS=f"{point}=exit", TREADLE_LEADER_LEASE="")
    await world.apply(world.agent_object(), world.run_object())
    await world.finish("sales-a1")
    assert await world.operator.ended() == -signal.SIGKILL
    await world.operator.start(TREADLE_LEADER_LEASE="")
    await world.reaches("sales", "Succeeded")

    async def free() -> bool:
        return not [lease async for lease in world.kube.list_objects("leases", world.namespace)]

    await eventually(free, "the Lease of the ended run goes", within=15)


@pytest.mark.req("R26")
async def test_a_run_that_shows_its_end_can_be_deleted_without_an_operator(world: OperatorWorld) -> None:
    await world.operator.start(TREADLE_FAILPOINTS="after_end=exit", TREADLE_LEADER_LEASE="")
    await world.apply(world.agent_object(), world.run_object())
    await world.finish("sales-a1")
    assert await world.operator.ended() == -signal.SIGKILL
    assert (await world.status("sales"))["phase"] == "Succeeded"
    await world.cluster.kubectl("delete", "run", "sales", "--wait=false", namespace=world.namespace)
    await world.is_gone("sales")


@pytest.mark.req("R26")
async def test_an_operator_that_was_away_while_the_run_ended_shows_the_receipt(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    await world.reaches("sales", "Starting")
    await world.operator.kill()
    await world.finish("sales-a1")
    assert (await world.status("sales"))["phase"] == "Starting"
    await world.operator.start(TREADLE_LEADER_LEASE="other")
    done = await world.reaches("sales", "Succeeded")
    assert done["attempt"] == 1


async def test_two_operators_at_once_waste_calls_and_nothing_else(
    world: OperatorWorld, second_operator: OperatorProcess
) -> None:
    await world.operator.start(TREADLE_LEADER_LEASE="")
    await second_operator.start(TREADLE_LEADER_LEASE="")
    names = [f"r{n}" for n in range(6)]
    runs = [world.run_object(name, thread=f"t{n % 3}") for n, name in enumerate(names)]
    await world.apply(world.agent_object(), *runs)
    # At once: which of two Runs that came in the same second goes first is decided by their uids.
    await asyncio.gather(*(world.finish(f"{name}-a1") for name in names))
    for name in names:
        done = await world.reaches(name, "Succeeded")
        assert done["attempt"] == 1
    assert await world.reader.fetchval("SELECT count(*) FROM treadle.receipts") == len(names)
    assert await world.reader.fetchval("SELECT max(attempt) FROM treadle.run_attempts") == 1
    assert len(await world.pods()) == len(names)


async def test_a_stopped_leader_hands_over_at_once(
    world: OperatorWorld, second_operator: OperatorProcess
) -> None:
    await world.operator.start()
    await second_operator.start(ready=False)
    assert await second_operator.ask("/readyz") == (200, "ok\n")
    began = asyncio.get_running_loop().time()
    assert await world.operator.stop() == 0
    await eventually(second_operator.leads, "the other leads", within=10)
    assert asyncio.get_running_loop().time() - began < 12
    await world.apply(world.agent_object(), world.run_object())
    await world.finish("sales-a1")
    await world.reaches("sales", "Succeeded")
