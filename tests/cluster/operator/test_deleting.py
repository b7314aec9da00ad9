"""Deleting a Run in mid-run is a cancel plus clean-up."""

import pytest

from support.eventually import eventually
from support.operator_world import OperatorWorld
from treadle_operator.kube_errors import NotFound
from treadle_store.errors import StaleToken


async def test_a_deleted_run_is_settled_as_cancelled_before_it_goes(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    agent = await world.agent("sales-a1")
    await world.node.runs(world.namespace, "sales-a1")
    await agent.claim()
    uid = (await world.run("sales"))["metadata"]["uid"]
    await world.cluster.kubectl("delete", "run", "sales", "--wait=false", namespace=world.namespace)

    async def told_to_go() -> bool:
        return "deletionTimestamp" in (await world.pod("sales-a1"))["metadata"]

    await eventually(told_to_go, "the pod is deleted", within=15)
    with pytest.raises(StaleToken):
        await agent.work("too-late")
    await world.node.removes(world.namespace, "sales-a1")
    await world.is_gone("sales")
    rows = await world.reader.fetch(
        "SELECT r.status, q.payload ->> 'reason' AS reason FROM treadle.runs r"
        " JOIN treadle.receipts q USING (run_id) WHERE r.run_id = $1",
        uid,
    )
    assert [tuple(row) for row in rows] == [("cancelled", "Deleted")]


async def test_a_deleted_run_makes_room_for_the_next_of_its_thread(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object("first"))
    await world.pod("first-a1")
    await world.apply(world.run_object("second"))
    await world.reaches("second", "Queued")
    await world.cluster.kubectl("delete", "run", "first", "--wait=false", namespace=world.namespace)
    await world.pod("second-a1")


async def test_a_run_deleted_by_force_is_settled_from_the_store(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    await world.reaches("sales", "Starting")
    uid = (await world.run("sales"))["metadata"]["uid"]
    await world.operator.kill()
    await world.cluster.kubectl("delete", "run", "sales", "--wait=false", namespace=world.namespace)
    await world.kube.merge("runs", world.namespace, "sales", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await world.run("sales")
    await world.operator.start(TREADLE_LEADER_LEASE="other")

    async def settled() -> bool:
        status = await world.reader.fetchval("SELECT status FROM treadle.runs WHERE run_id = $1", uid)
        return bool(status == "cancelled")

    await eventually(settled, "the row is settled", within=30)


@pytest.mark.req("R90")
async def test_a_status_that_was_tampered_with_is_written_again(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    agent = await world.agent("sales-a1")
    await world.node.runs(world.namespace, "sales-a1")
    await agent.claim()
    before = await world.reaches("sales", "Running")
    wiped = {"status": {"phase": None, "conditions": None, "pod": None, "attempt": None, "stream": None}}
    await world.patch_status("run", "sales", wiped)
    again = await world.reaches("sales", "Running")
    for field in ("pod", "attempt", "ownership", "stream", "specHash"):
        assert again[field] == before[field]


@pytest.mark.req("R90")
async def test_a_run_whose_status_was_never_written_gets_it_from_the_store(world: OperatorWorld) -> None:
    await world.operator.start(TREADLE_FAILPOINTS="before_status=exit", TREADLE_LEADER_LEASE="")
    await world.apply(world.agent_object(), world.run_object())
    await world.operator.ended()
    assert "phase" not in await world.status("sales")
    await world.finish("sales-a1")
    await world.operator.start(TREADLE_LEADER_LEASE="")
    done = await world.reaches("sales", "Succeeded")
    record = await world.record("sales")
    assert record.receipt is not None
    assert done["delivery"]["receiptID"] == record.receipt.digest
