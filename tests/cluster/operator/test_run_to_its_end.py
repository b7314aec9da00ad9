"""A Run from `kubectl apply` to its receipt in its status."""

import json

import pytest

from support.eventually import eventually
from support.operator_world import OperatorWorld
from treadle_api.names import FINALIZER, lease_name
from treadle_operator.kube_errors import NotFound


@pytest.mark.req("R86")
@pytest.mark.req("R96")
async def test_an_undisturbed_run_shows_its_receipt_after_three_status_writes(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    agent = await world.agent("sales-a1")
    started = await world.reaches("sales", "Starting")
    assert FINALIZER in (await world.run("sales"))["metadata"]["finalizers"]
    assert started["attempt"] == 1

    await world.node.runs(world.namespace, "sales-a1")
    await agent.claim()
    running = await world.reaches("sales", "Running")
    assert running["ownership"]["holder"] == agent.holder

    await agent.settle()
    await world.node.ends(world.namespace, "sales-a1", 0)
    done = await world.reaches("sales", "Succeeded", "NothingToDeliver")
    receipt = (await world.record("sales")).receipt
    assert receipt is not None
    assert done["delivery"]["receiptID"] == receipt.digest
    assert world.condition(done, "Finished")["status"] == "True"
    await world.counts('treadle_status_writes_total{kind="runs"}', 3)
    assert "kopf" not in json.dumps(await world.run("sales")), "Kopf writes nothing on our objects"


async def test_an_ended_run_leaves_neither_finalizer_nor_lease_behind(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    await world.finish("sales-a1")
    await world.reaches("sales", "Succeeded")
    run = await world.run("sales")

    async def freed() -> bool:
        return FINALIZER not in (await world.run("sales"))["metadata"].get("finalizers", [])

    await eventually(freed, "the finalizer goes", within=15)
    with pytest.raises(NotFound):
        await world.kube.get("leases", world.namespace, lease_name(run["metadata"]["uid"]))

    async def forgotten() -> bool:
        return 'treadle_runs{phase="Succeeded"}' not in await world.operator.metrics()

    await eventually(forgotten, "the watch tells that the run left the selection", within=15)


@pytest.mark.req("R87")
async def test_the_story_of_a_run_is_told_by_get_and_describe(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    await world.finish("sales-a1")
    await world.reaches("sales", "Succeeded")
    row = (await world.cluster.kubectl("get", "runs", "--no-headers", namespace=world.namespace)).split()
    assert row[:4] == ["sales", "t", "Succeeded", "NothingToDeliver"]

    async def described() -> str:
        told = await world.cluster.kubectl("describe", "run", "sales", namespace=world.namespace)
        return told if "NothingToDeliver" in told.partition("Events:")[2] else ""

    told = await eventually(described, "describe tells the end", within=10)
    story = told.partition("Events:")[2]
    assert "Starting" in story
    assert "Warning" not in story
    # kubectl sorts by whole seconds; the order in which they were told is that of their making.
    reasons = [reason for _, reason in await world.events("sales")]
    assert reasons.index("Starting") < reasons.index("NothingToDeliver")


@pytest.mark.req("R88")
async def test_kubectl_wait_sees_the_end(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    await world.finish("sales-a1")
    for condition in ("Finished", "Succeeded"):
        await world.cluster.kubectl(
            "wait", f"--for=condition={condition}", "run/sales", "--timeout=20s", namespace=world.namespace
        )
