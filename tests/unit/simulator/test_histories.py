"""Seeded histories of the whole protocol: 10 000 in every run of the unit tier, each with its own faults."""

from collections import Counter
from collections.abc import Callable

import pytest

from support.simulator.history import play
from support.simulator.loop import Broken
from treadle_api.run_status import Phase
from treadle_operator.lifecycle import ending, executing, outcome, run, seen
from treadle_operator.lifecycle.actions import Assign, Decision, RunDecision
from treadle_operator.lifecycle.status import Shown, unfinished
from treadle_operator.lifecycle.world import RunWorld

HISTORIES = 10_000
CHUNK = 625


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_no_fault_breaks_a_promise_and_every_run_ends(first: int) -> None:
    ends: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        ends.update(play(seed).outcomes)
    assert {"success", "error", "cancelled", "timeout"} <= ends.keys()
    assert ends["success"] > ends.total() / 2


def test_an_undisturbed_run_gets_three_status_writes_and_one_attempt() -> None:
    for seed in range(50):
        summary = play(seed, quiet=True)
        assert (summary.attempts, summary.status_writes) == (1, 3), f"seed {seed}: {summary}"


def test_a_seed_always_gives_the_same_history() -> None:
    assert [play(seed) for seed in range(20)] == [play(seed) for seed in range(20)]


def broken_within(seeds: int) -> str | None:
    """What the first history that breaks says, None when none of the first `seeds` does."""
    for seed in range(seeds):
        try:
            play(seed)
        except Broken as broken:
            return str(broken)
    return None


Rule = Callable[[RunWorld], RunDecision]


def change(monkeypatch: pytest.MonkeyPatch, mutate: Callable[[RunWorld, RunDecision], RunDecision]) -> None:
    right: Rule = run.decide_run
    monkeypatch.setattr(run, "decide_run", lambda world: mutate(world, right(world)))


def test_it_notices_when_the_token_is_not_raised_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def last(_: RunWorld, decision: RunDecision) -> RunDecision:
        rest = [a for a in decision.actions if not isinstance(a, Assign)]
        bumps = [a for a in decision.actions if isinstance(a, Assign)]
        return Decision((*rest, *bumps), decision.status, decision.requeue_after)

    change(monkeypatch, last)
    assert broken_within(200) is not None


def test_it_notices_when_an_exit_code_counts_as_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(world: RunWorld, decision: RunDecision) -> RunDecision:
        ended = [p for p in world.pods if p.terminated is not None and p.terminated.exit_code == 0]
        if not ended or world.record is None or world.run.finished or world.run.deleting:
            return decision
        status = unfinished(world, Shown(Phase.SUCCEEDED, "Delivered", "exit 0"))
        status["outcome"] = "Success"
        return Decision(status=status)

    change(monkeypatch, trusting)
    assert broken_within(400) is not None


def test_it_notices_when_receipts_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "verified", lambda record: None)
    assert broken_within(50) is not None


def test_it_notices_when_no_budget_ends_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    within = tuple((name, rule) for name, rule in run.WITHIN if rule is not executing.budget_used)
    monkeypatch.setattr(run, "WITHIN", within)
    assert "budget" in (broken_within(400) or "")


def test_it_notices_when_silence_is_not_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen.Seen, "silence", property(lambda self: 0.0))
    assert "not ended" in (broken_within(200) or "")


def test_it_notices_when_a_start_has_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen.Seen, "start_for", property(lambda self: 0.0))
    assert "not ended" in (broken_within(600) or "")


def test_it_notices_when_a_deletion_settles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tuple((name, rule) for name, rule in run.OUTSIDE if rule is not ending.deleted_unfinished)
    monkeypatch.setattr(run, "OUTSIDE", outside)
    assert broken_within(400) is not None
