"""What is missing has a name and a next step, and the Run goes on once it is there."""

from typing import Any

import pytest

from support.operator_world import OperatorWorld


@pytest.mark.req("R91")
async def test_a_run_waits_for_its_agent_and_then_goes_on(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.run_object())
    waiting = await world.reaches("sales", "Pending", "AgentPending")
    assert "helper" in world.condition(waiting, "Succeeded")["message"]
    assert world.condition(waiting, "Reconciling")["status"] == "True"
    await world.apply(world.agent_object())
    await world.finish("sales-a1")
    await world.reaches("sales", "Succeeded")


@pytest.mark.req("R91")
async def test_a_run_waits_for_its_thread_and_then_goes_on(world: OperatorWorld) -> None:
    await world.operator.start()
    run = world.run_object()
    del run["spec"]["threadTemplate"]
    await world.apply(world.agent_object(), run)
    waiting = await world.reaches("sales", "Pending", "ThreadPending")
    assert "threadTemplate" in world.condition(waiting, "Succeeded")["message"]
    thread = {
        "apiVersion": "treadle.dev/v1alpha1",
        "kind": "Thread",
        "metadata": {"name": "t"},
        "spec": {"agentRef": {"name": "helper"}},
    }
    await world.apply(thread)
    await world.finish("sales-a1")
    await world.reaches("sales", "Succeeded")


@pytest.mark.req("R91")
async def test_a_run_waits_for_its_config_maps_and_takes_their_contents(world: OperatorWorld) -> None:
    await world.operator.start()
    spec: dict[str, Any] = {
        "input": {"configMapKeyRef": {"name": "words", "key": "ask.txt"}},
        "files": [{"path": "notes/q3.md", "configMapKeyRef": {"name": "notes", "key": "q3.md"}}],
    }
    await world.apply(world.agent_object(), world.run_object(**spec))
    waiting = await world.reaches("sales", "Pending", "InputPending")
    assert "ConfigMap" in world.condition(waiting, "Succeeded")["message"]
    for name, data in (("words", {"ask.txt": "sum it up"}), ("notes", {"q3.md": "# Q3\n12"})):
        await world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
    agent = await world.agent("sales-a1")
    claim = await agent.claim()
    assert claim.input == {"messages": [{"role": "user", "content": "sum it up"}]}
    assert [(file.path, file.size) for file in claim.files] == [("notes/q3.md", 7)]


async def test_what_stays_missing_ends_the_run_without_a_receipt(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.run_object(timeouts={"startSeconds": 10}))
    failed = await world.reaches("sales", "Failed", "AgentNotFound", within=30)
    assert "delivery" not in failed or "receiptID" not in failed["delivery"]
    assert world.condition(failed, "Stalled")["status"] == "True"


async def test_start_trouble_is_shown_in_the_kubelets_words(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    await world.pod("sales-a1")
    await world.node.waits(
        world.namespace, "sales-a1", "ImagePullBackOff", 'Back-off pulling image "none:1": not found'
    )
    waiting = await world.reaches("sales", "Starting", "ImagePullBackOff")
    assert "not found" in world.condition(waiting, "Succeeded")["message"]
    await world.finish("sales-a1")
    await world.reaches("sales", "Succeeded")


async def test_a_namespace_without_the_service_account_says_so_and_goes_on(world: OperatorWorld) -> None:
    await world.cluster.kubectl("delete", "serviceaccount", "treadle-agent", namespace=world.namespace)
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    waiting = await world.reaches("sales", "Starting", "PodCreationBackoff")
    assert "treadle-agent" in world.condition(waiting, "Succeeded")["message"]
    await world.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "treadle-agent"}})
    await world.pod("sales-a1")
    await world.finish("sales-a1")
    await world.reaches("sales", "Succeeded")


async def test_an_agent_says_what_it_lacks_and_becomes_ready(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object())
    agent = await world.agent_reaches("helper", "False", "SecretNotFound")
    assert "treadle-store" in agent
    await world.apply(world.store_secret())
    await world.apply(world.agent_object(graph="my.agents:graph"))
    await world.agent_reaches("helper", "True", "Ready")
