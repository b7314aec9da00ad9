"""Whatever is killed at whatever step: the files, the messages and the receipt of an undisturbed run."""

import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from support.cluster import Cluster
from support.e2e import Played, Stage, condition, open_stage
from support.e2e_harm import kill_operators, operators_are_back, send
from support.e2e_review import CHECKPOINTS, Moment, disturb, review
from support.eventually import eventually
from support.release import Release, free_namespace, one_at_a_time
from support.runs import check_the_log, outcome, rows
from treadle_operator.kube_errors import NotFound

SEED = os.environ.get("TREADLE_CHAOS_SEED", "20261130")
"""Chooses the steps; another value in the environment tries others."""

pytestmark = [pytest.mark.cluster_serial, pytest.mark.timeout(420)]


@dataclass
class Victim:
    """A review that is under way, and the ways to disturb it."""

    stage: Stage
    release: Release
    run: Played

    async def pod(self) -> dict[str, Any]:
        """The pod of the newest attempt, once it has claimed the thread."""
        query = "SELECT pod FROM treadle.run_attempts WHERE run_id = $1 ORDER BY attempt DESC LIMIT 1"
        name = await self.stage.operator.fetchval(query, self.run.run_id)
        return await self.stage.kube.get("pods", self.stage.namespace, name)

    async def kill_agent(self) -> None:
        await send(self.stage.cluster, "KILL", "agent", await self.pod())

    async def kill_keeper(self) -> None:
        await send(self.stage.cluster, "KILL", "keeper", await self.pod())

    async def delete_pod(self) -> None:
        name = (await self.pod())["metadata"]["name"]
        await self.stage.kubectl("delete", "pod", name, "--wait=false")

    async def freeze_pod(self) -> None:
        await send(self.stage.cluster, "STOP", "both", await self.pod())

    async def kill_operators(self) -> None:
        await kill_operators(self.stage.cluster, self.release)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def undisturbed(cluster: Cluster, treadle_release: Release) -> dict[str, Any]:
    """What every disturbed review must come to."""
    async with free_namespace(cluster) as namespace, open_stage(cluster, treadle_release, namespace) as stage:
        await stage.apply(*review("undisturbed"))
        shown = await stage.succeeds("undisturbed")
        assert shown["status"]["attempt"] == 1
        run = await stage.stored("undisturbed")
        await check_the_log(stage, run)
        assert len(await stage.steps(run)) == CHECKPOINTS
        return await outcome(stage, run)


@pytest.fixture
async def victim(stage: Stage, treadle_release: Release) -> AsyncIterator[Victim]:
    async with one_at_a_time():
        await stage.apply(*review("review"))
        yield Victim(stage, treadle_release, await stage.stored("review"))


async def _ends_like(victim: Victim, undisturbed: dict[str, Any]) -> dict[str, Any]:
    shown = await victim.stage.succeeds("review")
    assert await outcome(victim.stage, victim.run) == undisturbed
    await check_the_log(victim.stage, victim.run)
    receipt = await victim.stage.settled(victim.run)
    assert shown["status"]["delivery"]["receiptID"] == receipt.digest
    assert condition(shown, "Succeeded")["reason"] == "Delivered"
    status: dict[str, Any] = shown["status"]
    return status


@pytest.mark.req("R15", "R20", "R21", "R24", "R26")
@pytest.mark.parametrize(
    ("deed", "attempts", "loss"),
    [
        ("kill_agent", 2, "AgentCrashed"),
        ("kill_keeper", 2, "AgentCrashed"),
        ("delete_pod", 2, "Drained"),
    ],
)
async def test_a_lost_attempt_is_followed_by_one_that_ends_the_run(
    victim: Victim,
    undisturbed: dict[str, Any],
    deed: str,
    attempts: int,
    loss: str,
) -> None:
    moment = Moment.choose(random.Random(f"{SEED}/{deed}"))
    print(f"{deed} at {moment}")
    await disturb(victim.stage, victim.run, moment, getattr(victim, deed))
    status = await _ends_like(victim, undisturbed)
    assert status["attempt"] == attempts
    assert [attempt["reason"] for attempt in status["attempts"][:-1]] == [loss]
    assert status.get("disruptions", 0) == (1 if deed == "delete_pod" else 0)


@pytest.mark.req("R26", "R90")
async def test_the_death_of_every_operator_costs_a_run_nothing(
    victim: Victim, undisturbed: dict[str, Any], cluster: Cluster
) -> None:
    moment = Moment.choose(random.Random(f"{SEED}/operators"))
    await disturb(victim.stage, victim.run, moment, victim.kill_operators)
    # What the next operator knows it has from the store: nobody kept the status for it.
    wiped = '{"status": {"phase": null, "conditions": null, "pod": null, "attempt": null, "stream": null}}'
    await victim.stage.kubectl(
        "patch", "run", "review", "--subresource=status", "--type=merge", f"--patch={wiped}"
    )
    status = await _ends_like(victim, undisturbed)
    assert status["attempt"] == 1
    assert status["pod"]["name"] == "review-a1"
    await operators_are_back(cluster, victim.release)


@pytest.mark.req("R19", "R20", "R21")
async def test_a_frozen_pod_is_followed_and_writes_nothing_once_it_thaws(
    victim: Victim, undisturbed: dict[str, Any], cluster: Cluster
) -> None:
    moment = Moment.choose(random.Random(f"{SEED}/freeze"))
    await disturb(victim.stage, victim.run, moment, victim.freeze_pod)
    frozen = await victim.stage.kube.get("pods", victim.stage.namespace, "review-a1")

    async def followed() -> bool:
        try:
            return (await victim.pod())["metadata"]["name"] == "review-a2"
        except NotFound:  # assigned, and its pod is still to be created
            return False

    await eventually(followed, "the silent pod is followed by another", within=60, every=0.2)
    await send(cluster, "CONT", "both", frozen)
    status = await _ends_like(victim, undisturbed)
    assert status["attempt"] == 2
    assert status["attempts"][0]["reason"] == "LeaseExpired"
    before = await rows(victim.stage, victim.run)

    async def left() -> bool:
        try:
            await victim.stage.kube.get("pods", victim.stage.namespace, "review-a1")
        except NotFound:
            return True
        return False

    await eventually(left, "the thawed pod has ended", within=60, every=0.2)
    assert await rows(victim.stage, victim.run) == before


@pytest.mark.req("R15", "R20", "R21", "R24", "R26")
async def test_everything_is_killed_in_one_run(
    victim: Victim, undisturbed: dict[str, Any], cluster: Cluster
) -> None:
    rng = random.Random(f"{SEED}/everything")

    async def agent_and_operators() -> None:
        await victim.kill_agent()
        await victim.kill_operators()

    for attempt, deed, first, last in (
        (1, victim.delete_pod, 1, 4),
        (2, agent_and_operators, 5, 8),
        (3, victim.kill_keeper, 9, CHECKPOINTS - 5),
    ):
        moment = Moment.choose(rng, after=first, before=last)
        print(f"{deed.__name__} of attempt {attempt} at {moment}")
        await disturb(victim.stage, victim.run, moment, deed, attempt=attempt)
    status = await _ends_like(victim, undisturbed)
    assert status["attempt"] == 4
    assert status["disruptions"] == 1
    await operators_are_back(cluster, victim.release)
