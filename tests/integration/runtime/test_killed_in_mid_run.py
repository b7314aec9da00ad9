"""Whatever ends an attempt, and wherever: files and messages are those of an undisturbed run."""

import random
from typing import Any

import pytest

from support.agent_process import Harness
from support.runs import check_the_log, outcome
from support.scripts import NOTES, configuration, review
from treadle_runtime.failpoints import POINTS

# How often each point is reached in an undisturbed run of the review, at least.
_REACHED = {
    "before_model": 8,
    "after_model": 8,
    "before_tool": 9,
    "after_tool": 9,
    "before_writes": 17,
    "after_writes": 17,
    "before_checkpoint": 17,
    "after_checkpoint": 17,
}
_SEEDS = {"kill": 20261130, "kill_keeper": 7, "term": 3}


def points(deed: str, count: int) -> list[str]:
    """A seeded choice of failpoints, e.g. `after_tool@4=kill`."""
    chosen = random.Random(_SEEDS[deed])
    found = []
    for _ in range(count):
        point = chosen.choice(sorted(_REACHED))
        found.append(f"{point}@{chosen.randint(1, _REACHED[point])}={deed}")
    return found


@pytest.fixture
async def undisturbed(harness: Harness) -> dict[str, Any]:
    run = await harness.admit(configuration(review()), files=NOTES)
    assert await harness.drive(run) == 1
    await check_the_log(harness, run)
    return await outcome(harness, run)


@pytest.mark.timeout(600)
@pytest.mark.req("R15", "R20", "R24", "R26", "R49", "R50", "R53", "R84")
@pytest.mark.parametrize("deed", ["kill", "kill_keeper", "term"])
async def test_the_run_ends_as_if_nothing_had_happened(
    harness: Harness, undisturbed: dict[str, Any], deed: str
) -> None:
    run = await harness.admit(configuration(review()), files=NOTES)
    attempts = await harness.drive(run, failpoints=points(deed, 5))
    assert attempts > 1, harness.pods[-1].log
    assert await outcome(harness, run) == undisturbed
    await check_the_log(harness, run)


@pytest.mark.timeout(600)
@pytest.mark.req("R20")
@pytest.mark.parametrize("point", ["before_writes", "after_writes", "before_checkpoint", "after_tool"])
async def test_an_edit_that_was_cut_off_is_made_exactly_once(
    harness: Harness, undisturbed: dict[str, Any], point: str
) -> None:
    # The 12th and 13th writes are those of the two parallel edits, the 10th checkpoint follows them.
    place = {"before_writes": 12, "after_writes": 12, "before_checkpoint": 12, "after_tool": 6}[point]
    run = await harness.admit(configuration(review()), files=NOTES)
    assert await harness.drive(run, failpoints=[f"{point}@{place}=kill"]) == 2
    assert await outcome(harness, run) == undisturbed
    await check_the_log(harness, run)


@pytest.mark.timeout(600)
@pytest.mark.req("R20", "R24")
@pytest.mark.parametrize(
    "point",
    [
        "after_assignment",
        "after_lease",
        "after_claim",
        "after_restore",
        "after_graph",
        "after_finalizing",
        "before_settle",
        "after_settle",
    ],
)
async def test_an_attempt_killed_outside_the_graph_is_taken_over(harness: Harness, point: str) -> None:
    assert point in POINTS
    run = await harness.admit(configuration(review()), files=NOTES)
    attempts = await harness.drive(run, failpoints=[f"{point}=kill"])
    assert attempts == (1 if point == "after_settle" else 2)
    await check_the_log(harness, run)
