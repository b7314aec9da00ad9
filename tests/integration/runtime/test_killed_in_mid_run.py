"""Whatever ends an attempt, and wherever: files and messages are those of an undisturbed run."""

import random
from collections import Counter
from typing import Any

import pytest

from support.agent_process import Harness, Run
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
_SEEDS = {"kill": 20261130, "kill_keeper": 7, "stop": 42, "term": 3}


def points(deed: str, count: int) -> list[str]:
    """A seeded choice of failpoints, e.g. `after_tool@4=kill`."""
    chosen = random.Random(_SEEDS[deed])
    found = []
    for _ in range(count):
        point = chosen.choice(sorted(_REACHED))
        found.append(f"{point}@{chosen.randint(1, _REACHED[point])}={deed}")
    return found


async def outcome(harness: Harness, run: Run) -> dict[str, Any]:
    """What must not depend on how many attempts it took."""
    state = await harness.state(run)
    receipt = await harness.settled(run)
    return {
        "messages": [
            (m.type, m.content, [(c["id"], c["name"], c["args"]) for c in getattr(m, "tool_calls", [])])
            for m in state["messages"]
        ],
        "todos": state["todos"],
        "artifacts": state["artifacts"],
        "files": await harness.files(run),
        "outcome": receipt.payload["outcome"],
        "receipt_files": receipt.payload["artifacts"],
        "produced": receipt.payload["produced"],
    }


async def check_the_log(harness: Harness, run: Run) -> None:
    """One receipt, no event twice, no message told twice, steps without a gap, nothing late."""
    log = await harness.log(run)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    kinds = Counter(event.type for event in log)
    assert kinds["run.end"] == kinds["run.delivery"] == kinds["run.input"] == 1
    assert [log[-2].type, log[-1].type] == ["run.end", "run.delivery"]
    told = Counter(event.payload["id"] for event in log if event.type == "message")
    assert set(told.values()) == {1}
    state = await harness.state(run)
    # Parallel tools are told in the order in which they ended, and stand in the state in that of their calls.
    assert set(told) == {message.id for message in state["messages"]}
    steps = await harness.steps(run)
    assert steps == list(range(-1, len(steps) - 1))
    receipts = await harness.admin.fetchval(
        "SELECT count(*) FROM treadle.receipts WHERE run_id = $1", run.run_id
    )
    assert receipts == 1
    tokens = [event.token for event in log]
    assert tokens == sorted(tokens), "a row of an older token behind a newer one is a late write"


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
