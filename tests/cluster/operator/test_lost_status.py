"""A finished Run whose status was lost gets it back from the store: it matches the watch's selector again, so
that its loss is an event for an operator that works and part of the first list of one that starts."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.cluster import Cluster, KubectlFailed
from support.etcd import Etcd, open_etcd
from support.eventually import eventually
from support.operator_world import OperatorWorld
from treadle_api.names import FINALIZER

pytestmark = pytest.mark.req("R90")

LASTING = ("outcome", "startTime", "completionTime", "attempt", "duration", "specHash", "result", "stream")
"""What must come back as it was, beside delivery and conditions."""


@pytest.fixture
async def etcd(cluster: Cluster) -> AsyncIterator[Etcd]:
    async with open_etcd(cluster) as opened:
        yield opened


async def finished(world: OperatorWorld) -> dict[str, Any]:
    """The status of a Run that ended and was cleaned up."""
    await world.apply(world.agent_object(), world.run_object())
    await world.finish("sales-a1")
    await world.reaches("sales", "Succeeded")
    return await freed(world)


async def freed(world: OperatorWorld) -> dict[str, Any]:
    """Its status, once our finalizer is gone."""

    async def probe() -> dict[str, Any] | None:
        run = await world.run("sales")
        return None if FINALIZER in run["metadata"].get("finalizers", []) else dict(run["status"])

    status = await eventually(probe, "the finalizer goes", within=15)
    assert status is not None
    return status


def lasting(status: dict[str, Any]) -> dict[str, Any]:
    """Without the times at which conditions last changed and the receipt was last verified."""
    said = [(c["type"], c["status"], c["reason"], c["message"]) for c in status["conditions"]]
    delivery = {k: v for k, v in status["delivery"].items() if k != "verifiedTime"}
    return {**{name: status.get(name) for name in LASTING}, "delivery": delivery, "conditions": said}


async def lose(etcd: Etcd, world: OperatorWorld, how: str, backup: dict[str, Any]) -> None:
    """Sets the stored status to none, to nothing, or the whole Run back to what it was in the backup."""
    stored = await etcd.read("runs", world.namespace, "sales")
    match how:
        case "no status":
            del stored["status"]
        case "an empty status":
            stored["status"] = {}
        case "a backup":
            stored = backup
    await etcd.write("runs", stored)


HOW = ["no status", "an empty status", "a backup"]


@pytest.mark.parametrize("how", HOW)
async def test_a_lost_status_of_a_finished_run_comes_back_at_once(
    world: OperatorWorld, etcd: Etcd, how: str
) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    await world.reaches("sales", "Starting")
    backup = await etcd.read("runs", world.namespace, "sales")
    whole = await finished(world)
    await lose(etcd, world, how, backup)
    await world.reaches("sales", "Succeeded", within=15)
    assert lasting(await freed(world)) == lasting(whole)
    assert [pod["metadata"]["name"] for pod in await world.pods()] == ["sales-a1"], "nothing ran again"
    assert (await world.record("sales")).attempt == 1


@pytest.mark.parametrize("how", HOW)
async def test_an_operator_that_starts_gives_a_lost_status_back(
    world: OperatorWorld, etcd: Etcd, how: str
) -> None:
    await world.operator.start(TREADLE_LEADER_LEASE="")
    await world.apply(world.agent_object(), world.run_object())
    await world.reaches("sales", "Starting")
    backup = await etcd.read("runs", world.namespace, "sales")
    whole = await finished(world)
    await world.operator.kill()
    await lose(etcd, world, how, backup)
    assert (await world.status("sales")).get("phase") != "Succeeded"
    await world.operator.start(TREADLE_LEADER_LEASE="")
    await world.reaches("sales", "Succeeded", within=15)
    assert lasting(await freed(world)) == lasting(whole)
    assert (await world.record("sales")).attempt == 1


async def test_the_api_server_itself_lets_no_end_be_wiped(world: OperatorWorld) -> None:
    await world.operator.start()
    whole = await finished(world)
    for wiped in ({"status": None}, {"status": {"conditions": None}}, {"status": {"delivery": None}}):
        with pytest.raises(KubectlFailed, match=r"keep them|keep the stored value|kept once it is set"):
            await world.patch_status("run", "sales", wiped)
    assert await world.status("sales") == whole


async def test_what_may_be_wiped_comes_back_with_the_phase(world: OperatorWorld) -> None:
    await world.operator.start()
    whole = await finished(world)
    taken = dict.fromkeys(("phase", "attempt", "duration", "specHash", "stream"))
    await world.patch_status("run", "sales", {"status": taken})
    await world.reaches("sales", "Succeeded", within=15)
    assert lasting(await freed(world)) == lasting(whole)
