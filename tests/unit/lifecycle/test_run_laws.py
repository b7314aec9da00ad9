"""Laws of `decide_run` over all worlds: total, deterministic, stable, and true to the promises."""

from dataclasses import replace

from hypothesis import given, settings

from support.worlds import worlds
from treadle_api.records import LossClass, RunStatus
from treadle_api.run_status import RunObjectStatus
from treadle_operator.lifecycle.actions import (
    Assign,
    CreatePod,
    DeletePod,
    EmitEvent,
    RemoveFinalizer,
    RunDecision,
)
from treadle_operator.lifecycle.outcome import verified
from treadle_operator.lifecycle.run import decide_run
from treadle_operator.lifecycle.seen import limits
from treadle_operator.lifecycle.world import RunWorld

MANY = settings(max_examples=150, deadline=None)


def is_true(decision: RunDecision, kind: str) -> bool:
    return RunObjectStatus.model_validate(decision.status or {}).is_true(kind)


def shown(world: RunWorld, decision: RunDecision) -> RunWorld:
    """The world after the status was written and nothing else happened."""
    if decision.status is None:
        return world
    return replace(world, run=replace(world.run, status=decision.status))


@MANY
@given(worlds())
def test_every_world_has_an_answer_that_the_crd_accepts(world: RunWorld) -> None:
    decision = decide_run(world)
    assert decision == decide_run(world)
    assert decision.requeue_after is None or decision.requeue_after >= 0
    if decision.status is not None:
        status = RunObjectStatus.model_validate(decision.status)
        assert all(condition.message for condition in status.conditions)
        assert status.observed_generation == world.run.generation


@MANY
@given(worlds())
def test_deciding_again_with_the_new_status_changes_nothing_more(world: RunWorld) -> None:
    first = decide_run(world)
    again = decide_run(shown(world, first))
    assert again.status is None or again.status == first.status
    assert not any(isinstance(action, EmitEvent) for action in again.actions) or world.run.deleting
    if not is_true(first, "Finished"):
        assert again.actions == tuple(a for a in first.actions if not isinstance(a, EmitEvent)) or (
            world.run.deleting and again.actions == first.actions
        )


@MANY
@given(worlds())
def test_no_run_shows_its_end_while_it_keeps_the_finalizer(world: RunWorld) -> None:
    """It leaves the watch with that: an operator that died in between would leave it undeletable."""
    decision = decide_run(world)
    if is_true(decision, "Finished") and world.run.finalizer and not world.run.finished:
        assert RemoveFinalizer() in decision.actions


@MANY
@given(worlds())
def test_success_is_shown_only_with_a_verified_receipt(world: RunWorld) -> None:
    if is_true(decide_run(world), "Succeeded"):
        assert world.record is not None
        assert world.record.status is RunStatus.SUCCESS
        assert verified(world.record) is not None


@MANY
@given(worlds())
def test_an_unfinished_run_is_reconciling_and_a_failed_one_is_stalled(world: RunWorld) -> None:
    decision = decide_run(world)
    if decision.status is None:
        return
    status = RunObjectStatus.model_validate(decision.status)
    finished = status.is_true("Finished")
    assert status.is_true("Reconciling") is not finished
    assert status.is_true("Stalled") is (finished and not status.is_true("Succeeded"))


@MANY
@given(worlds())
def test_a_finished_run_stays_as_it_is(world: RunWorld) -> None:
    first = decide_run(world)
    if not is_true(first, "Finished"):
        return
    later = replace(shown(world, first), record=None, pods=(), store_down_for=None)
    again = decide_run(later)
    assert again.status is None
    assert not any(isinstance(action, (Assign, CreatePod)) for action in again.actions)


@MANY
@given(worlds())
def test_a_pod_is_made_only_under_the_assignment_before_it(world: RunWorld) -> None:
    actions = decide_run(world).actions
    for position, action in enumerate(actions):
        if isinstance(action, CreatePod):
            assigned = [a for a in actions[:position] if isinstance(a, Assign)]
            assert [a.attempt for a in assigned] == [action.attempt]


@MANY
@given(worlds())
def test_a_new_attempt_stays_within_the_budget_of_its_class(world: RunWorld) -> None:
    for action in decide_run(world).actions:
        if isinstance(action, Assign) and action.loss is not None:
            assert world.record is not None
            retry = limits(world.record).retry
            assert action.attempt == world.record.attempt + 1
            if action.loss is LossClass.RETRY:
                assert world.record.retries < retry.backoff_limit
            else:
                assert world.record.disruptions < retry.max_disruptions


@MANY
@given(worlds())
def test_the_token_is_raised_before_a_pod_is_ended(world: RunWorld) -> None:
    """Unless it belongs to another attempt, the run has ended, or the store cannot be asked."""
    actions = decide_run(world).actions
    record = world.record
    if record is None or record.status.terminal:
        return
    current = {(p.name, p.uid) for p in world.pods if p.attempt == record.attempt}
    for position, action in enumerate(actions):
        if not isinstance(action, DeletePod) or world.run.finished:
            continue
        if (action.name, action.uid) in current:
            assert any(isinstance(a, Assign) for a in actions[:position])
