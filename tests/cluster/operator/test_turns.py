"""Runs of one thread follow one another."""

import pytest

from support.eventually import eventually
from support.operator_world import OperatorWorld


async def age(world: OperatorWorld, name: str) -> tuple[str, str]:
    """What orders a queue: the server tells time in seconds, the uid decides within one."""
    metadata = (await world.run(name))["metadata"]
    return metadata["creationTimestamp"], metadata["uid"]


@pytest.mark.req("R18")
async def test_runs_of_one_thread_wait_and_take_turns_oldest_first(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object("first"))
    await world.pod("first-a1")
    await world.apply(world.run_object("second"))
    await world.reaches("second", "Queued", "ThreadBusy")
    await world.apply(world.run_object("third"))
    await world.reaches("third", "Queued", "ThreadBusy")
    waiting = sorted([(await age(world, name), name) for name in ("second", "third")])
    names = ["first", *(name for _, name in waiting)]
    for index, name in enumerate(names):
        assert {pod["metadata"]["name"] for pod in await world.pods()} == {
            f"{n}-a1" for n in names[: index + 1]
        }
        await world.finish(f"{name}-a1")
        await world.reaches(name, "Succeeded")
        if index + 1 < len(names):
            await world.pod(f"{names[index + 1]}-a1")
    tokens = [(await world.record(name)).token for name in names]
    assert tokens == sorted(tokens)


@pytest.mark.req("R18")
async def test_one_more_run_than_may_wait_is_refused_with_what_to_do(world: OperatorWorld) -> None:
    await world.operator.start()
    thread = {
        "apiVersion": "treadle.dev/v1alpha1",
        "kind": "Thread",
        "metadata": {"name": "t"},
        "spec": {"agentRef": {"name": "helper"}, "maxQueuedRuns": 1},
    }
    await world.apply(world.agent_object(), thread, world.run_object("first"))
    await world.pod("first-a1")
    await world.apply(world.run_object("second"))
    await world.reaches("second", "Queued")
    await world.apply(world.run_object("third"))
    refused = await world.reaches("third", "Failed", "QueueFull")
    assert "maxQueuedRuns" in world.condition(refused, "Succeeded")["message"]


async def test_the_thread_tells_what_its_runs_do(world: OperatorWorld) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object("first"))
    await world.pod("first-a1")
    await world.apply(world.run_object("second"))

    async def told(name: str, queued: int, last: str | None) -> dict[str, object]:
        status = (await world.kube.get("threads", world.namespace, "t")).get("status", {})
        right = (status.get("activeRun") or {}).get("name") == name and status.get("queuedRuns") == queued
        return status if right and (status.get("lastRun") or {}).get("name") == last else {}

    await eventually(lambda: told("first", 1, None), "the thread shows first and one that waits", within=15)
    await world.finish("first-a1")
    await eventually(lambda: told("second", 0, "first"), "the thread shows second", within=15)
