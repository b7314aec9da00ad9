"""A lost pod costs time and never an acknowledged fact; how often is bounded."""

import pytest

from support.eventually import eventually
from support.operator_world import OperatorWorld
from treadle_api.names import lease_name
from treadle_store.errors import StaleToken

QUICK = {"backoffSeconds": 1, "backoffCapSeconds": 1}


@pytest.mark.req("R21")
async def test_a_crashed_pod_is_followed_by_the_next_attempt(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object(retry=QUICK))
    first = await world.agent("sales-a1")
    await world.node.runs(world.namespace, "sales-a1")
    await first.claim()
    await first.work("note")
    await world.node.ends(world.namespace, "sales-a1", 137, reason="Error")
    await world.finish("sales-a2")
    done = await world.reaches("sales", "Succeeded")
    assert done["attempt"] == 2
    with pytest.raises(StaleToken):
        await first.work("too-late")
    await world.counts('treadle_takeovers_total{loss="retry"}', 1)


@pytest.mark.req("R21")
async def test_a_drained_pod_is_followed_at_once_and_counts_as_disruption(world: OperatorWorld) -> None:
    await world.operator.start()
    slow = {"backoffSeconds": 300, "backoffCapSeconds": 300, "backoffLimit": 0}
    await world.apply(world.agent_object(), world.run_object(retry=slow))
    first = await world.agent("sales-a1")
    await world.node.runs(world.namespace, "sales-a1")
    await first.claim()
    await world.node.ends(
        world.namespace, "sales-a1", 75, message='{"reason": "Drained", "message": "the node is drained"}'
    )
    await world.finish("sales-a2")
    done = await world.reaches("sales", "Succeeded")
    assert (done["attempt"], done["disruptions"]) == (2, 1)


@pytest.mark.req("R21")
async def test_used_up_retries_end_the_run_with_a_receipt(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object(retry={**QUICK, "backoffLimit": 1}))
    for pod in ("sales-a1", "sales-a2"):
        agent = await world.agent(pod)
        await world.node.runs(world.namespace, pod)
        await agent.claim()
        await world.node.ends(
            world.namespace, pod, 1, message='{"reason": "AgentCrashed", "message": "boom"}'
        )
    failed = await world.reaches("sales", "Failed", "BackoffLimitExceeded")
    assert "boom" in world.condition(failed, "Succeeded")["message"]
    record = await world.record("sales")
    assert record.receipt is not None
    assert failed["delivery"]["receiptID"] == record.receipt.digest
    assert len(await world.pods()) == 2


@pytest.mark.req("R21")
async def test_a_configuration_fault_is_not_tried_again(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    agent = await world.agent("sales-a1")
    await world.node.runs(world.namespace, "sales-a1")
    await agent.claim()
    said = '{"reason": "GraphNotLoaded", "message": "no module named sales"}'
    await world.node.ends(world.namespace, "sales-a1", 78, message=said)
    failed = await world.reaches("sales", "Failed", "GraphNotLoaded")
    assert failed["attempt"] == 1


@pytest.mark.req("R19")
async def test_a_silent_holder_is_followed_and_its_pod_deleted(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(lease={"durationSeconds": 5, "renewSeconds": 1}), world.run_object())
    first = await world.agent("sales-a1")
    await world.node.runs(world.namespace, "sales-a1")
    await first.claim()
    name = lease_name((await world.run("sales"))["metadata"]["uid"])
    await world.kube.merge("leases", world.namespace, name, {"spec": {"holderIdentity": first.holder}})
    await world.reaches("sales", "Running")
    second = await world.agent("sales-a2")  # nobody renews: 5 s + 5 s by the operator's own clock
    gone = (await world.pod("sales-a1"))["metadata"]
    assert "deletionTimestamp" in gone
    lease = await world.kube.get("leases", world.namespace, name)
    assert lease["metadata"]["annotations"]["treadle.dev/pod"] == "sales-a2"
    assert not lease["spec"].get("holderIdentity")
    with pytest.raises(StaleToken):
        await first.work("too-late")
    await second.claim()
    await second.settle()
    await world.node.ends(world.namespace, "sales-a2", 0)
    done = await world.reaches("sales", "Succeeded")
    assert done["attempts"][0]["reason"] == "LeaseExpired"


async def test_a_renewing_holder_is_left_alone(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(lease={"durationSeconds": 5, "renewSeconds": 1}), world.run_object())
    agent = await world.agent("sales-a1")
    await world.node.runs(world.namespace, "sales-a1")
    await agent.claim()
    await world.reaches("sales", "Running")
    name = lease_name((await world.run("sales"))["metadata"]["uid"])
    renewals = 0

    async def renewed_long_enough() -> bool:
        nonlocal renewals
        renewals += 1
        spec = {"holderIdentity": agent.holder, "leaseTransitions": renewals}
        await world.kube.merge("leases", world.namespace, name, {"spec": spec})
        return renewals >= 16

    await eventually(renewed_long_enough, "the holder renewed for 16 s", within=60, every=1.0)
    assert (await world.status("sales"))["phase"] == "Running"
    assert (await world.record("sales")).attempt == 1


async def test_a_pod_deleted_by_hand_whose_holder_released_is_followed(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(lease={"durationSeconds": 5, "renewSeconds": 1}), world.run_object())
    first = await world.agent("sales-a1")
    await world.node.runs(world.namespace, "sales-a1")
    await first.claim()
    await world.reaches("sales", "Running")
    await world.node.removes(world.namespace, "sales-a1")
    await world.finish("sales-a2")
    done = await world.reaches("sales", "Succeeded")
    assert done["attempt"] == 2
