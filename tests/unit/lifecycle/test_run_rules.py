"""The rule table of `decide_run`, row by row: which rule answers which world."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.factories import (
    NOW,
    PREPARED,
    THREAD,
    dead_pod,
    fresh,
    lease,
    pod,
    receipt,
    record,
    retried,
    run_object,
    settled,
    world,
)
from treadle_api.reasons import Reason
from treadle_api.records import FencingToken, LossClass, RunStatus
from treadle_operator.lifecycle import run as rules
from treadle_operator.lifecycle.actions import (
    AddFinalizer,
    Admit,
    Assign,
    CreatePod,
    CreateThread,
    DeletePod,
    EmitEvent,
    EnsureLease,
    RemoveFinalizer,
    RequestCancel,
    SettleOrphan,
)
from treadle_operator.lifecycle.world import NO_LEASE, Problem, RunWorld, Waiting

PENDING, ASSIGNED, RUNNING, FINALIZING = (
    RunStatus.PENDING,
    RunStatus.ASSIGNED,
    RunStatus.RUNNING,
    RunStatus.FINALIZING,
)
FINISHED = {
    "observedGeneration": 1,
    "phase": "Succeeded",
    "conditions": [
        {"type": t, "status": "True", "reason": "Delivered", "message": "m", "lastTransitionTime": "t"}
        for t in ("Finished", "Succeeded")
    ],
}
DELETING = run_object(deleting=True)
assigned = record(ASSIGNED)
starting = world(record=assigned, lease=lease(holder=""))
silent = lease(silent_for=46.0)

LET_GO = "deleted and the store does not answer: end the pods; let go when the time is over"
LOST = "lost: assign the next attempt, end the old pod, Lease, new pod"
HANGS = "finalizing for too long: settle as error"
CLEAN = "deleted and ended: end the pods, then let go"
ROWS: list[tuple[str, str, RunWorld]] = [
    ("deleted and free", "deleted and our finalizer is gone: nothing",
     world(run=run_object(deleting=True, finalizer=False))),
    ("deleted, store down", LET_GO,
     world(run=DELETING, record=None, store_down_for=1.0)),
    ("deleted, never admitted", "deleted and not in the store: let go", world(run=DELETING, record=None)),
    ("deleted in mid-run", "deleted and not ended: cancel, then settle as cancelled", world(run=DELETING)),
    ("deleted after its end", CLEAN, world(run=DELETING, record=settled())),
    ("store down", "the store does not answer: keep what is shown and say so",
     world(record=None, store_down_for=9.0)),
    ("refused long ago", "Finished is shown and no receipt stands behind it: it stands",
     world(run=run_object(status=FINISHED), record=None)),
    ("receipt", "a verified receipt: the terminal status; clean up", world(record=settled())),
    ("receipt although the pod crashed", "a verified receipt: the terminal status; clean up",
     world(record=settled(), pods=(dead_pod(137),))),
    ("receipt of an older token", "ended without a verified receipt: look again, in the end ReceiptMissing",
     world(record=record(RunStatus.SUCCESS, receipt=receipt(token=6)))),
    ("receipt that says otherwise", "ended without a verified receipt: look again, in the end ReceiptMissing",
     world(record=record(RunStatus.SUCCESS, receipt=receipt(RunStatus.ERROR)))),
    ("no such Thread", "not admitted and something is missing or wrong: wait with its reason, in the end fail"
     " with it", fresh(thread=None)),
    ("Thread to be made", "not admitted and there is no Thread: create it from the template",
     fresh(thread=None, run=run_object(template_agent="reviewer"))),
    ("new", "not admitted: admit", fresh()),
    ("finalizer lost", "no finalizer: add it", world(run=run_object(finalizer=False))),
    ("others come first", "not its turn: ThreadBusy",
     world(record=record(PENDING, queue_position=2), pods=())),
    ("slot taken", "not its turn: ThreadBusy", world(record=record(PENDING, active_run="other"), pods=())),
    ("first of the queue", "its turn: assign, Lease, pod", world(record=record(PENDING), pods=())),
    ("parked", "parked: keep what is shown", world(record=record(RunStatus.PARKED))),
    ("too long", "activeSeconds are over: settle as timeout",
     world(record=record(settings={"timeouts": {"active_seconds": 30}}))),
    ("hung settlement", HANGS, world(record=record(FINALIZING), record_for=120)),
    ("exit 0 just now", "the pod ended well and left no receipt: look a second time",
     world(pods=(dead_pod(0, dead_for=0.2),))),
    ("exit 78", "the loss cannot be mended: settle as error", world(pods=(dead_pod(78),))),
    ("last retry lost", "the budget for this class of loss is used up: settle as error",
     world(record=retried(3), pods=(dead_pod(1, 4),))),
    ("last disruption", "the budget for this class of loss is used up: settle as error",
     world(record=retried(10, LossClass.DISRUPTION), pods=(), lease=lease(11, silent_for=46))),
    ("crashed just now", "the back-off is not over: RetryBackoff", world(pods=(dead_pod(1, dead_for=1),))),
    ("crashed a while ago", LOST,
     world(pods=(dead_pod(1, dead_for=5),))),
    ("exit 0 without a receipt", LOST,
     world(pods=(dead_pod(0),))),
    ("exit 86", LOST, world(pods=(dead_pod(86),))),
    ("drained", LOST,
     world(pods=(dead_pod(75, dead_for=0, disruption="EvictionByEvictionAPI"),))),
    ("silent holder", LOST, world(lease=silent)),
    ("Lease deleted long ago", LOST,
     world(lease=replace(NO_LEASE, silent_for=46))),
    ("gone, Lease released", LOST,
     world(pods=(), lease=lease(holder=""))),
    ("gone, Lease silent", LOST,
     world(pods=(), lease=silent)),
    ("never claimed in time", LOST,
     replace(starting, record=record(ASSIGNED, settings={"timeouts": {"start_seconds": 25}}))),
    ("running", "claimed and a living pod: Running", world()),
    ("claimed just now, Lease seen long ago", "claimed and a living pod: Running",
     world(lease=lease(holder="", silent_for=300), record_for=1.0)),
    ("draining", "claimed and a living pod: Running", world(pods=(pod(deleting=True),))),
    ("gone, Lease held", "claimed and no pod: wait the Lease out", world(pods=())),
    ("holder gone, namesake ended", "claimed and no pod: wait the Lease out",
     world(pods=(dead_pod(86, uid="other"),))),
    ("image never pulls", "the image could not be pulled within its grace: settle as error",
     replace(starting, pods=(pod(waiting=Waiting("ErrImagePull", "no such image", 300)),))),
    ("image not pulled yet", "a living pod: Starting",
     replace(starting, pods=(pod(waiting=Waiting("ErrImagePull", "no such image", 299)),))),
    ("starting", "a living pod: Starting", starting),
    ("pod refused for good", "the pod was refused for good: settle as error",
     replace(starting, pods=(), refused=Problem("InvalidPod", "not allowed", final=True))),
    ("assigned, no pod", "assigned and no pod yet: the same attempt's pod", replace(starting, pods=())),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "seen"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_first_rule_that_matches_answers(sentence: str, seen: RunWorld) -> None:
    assert rules.decided_by(seen)[0] == sentence


def test_every_rule_has_a_row() -> None:
    assert {row[1] for row in ROWS} == {name for name, _ in (*rules.OUTSIDE, *rules.WITHIN)}


def test_the_docstring_lists_the_rules_in_the_order_of_the_code() -> None:
    listed = re.findall(r"^ *\d+\. (.+)$", rules.__doc__ or "", re.MULTILINE)
    assert listed == [name for name, _ in (*rules.OUTSIDE, *rules.WITHIN)]


def actions(seen: RunWorld) -> tuple[object, ...]:
    return rules.decide_run(seen).actions


def test_a_new_run_gets_its_finalizer_before_it_is_admitted() -> None:
    assert actions(fresh()) == (AddFinalizer(), Admit(THREAD, PREPARED, run_object().created))
    assert rules.decide_run(fresh()).status is None


def test_a_missing_thread_is_made_from_the_template() -> None:
    seen = fresh(thread=None, run=run_object(template_agent="reviewer"))
    assert actions(seen) == (CreateThread("sales", "reviewer"),)


def test_the_first_attempt_is_assigned_before_lease_and_pod() -> None:
    seen = world(record=record(PENDING), pods=(), lease=NO_LEASE)
    assert actions(seen) == (
        Assign(1, FencingToken(6), "review-a1"),
        EnsureLease("review-a1"),
        CreatePod(1, 3),
    )


def test_a_crashed_operator_finishes_the_same_attempt() -> None:
    seen = replace(starting, pods=())
    assert actions(seen) == (
        Assign(1, FencingToken(7), "review-a1"),
        EnsureLease("review-a1"),
        CreatePod(1, 3),
    )


def test_a_takeover_raises_the_token_before_anything_else() -> None:
    done = [a for a in actions(world(lease=silent)) if not isinstance(a, EmitEvent)]
    assert done == [
        Assign(2, FencingToken(7), "review-a2", LossClass.DISRUPTION, "LeaseExpired"),
        DeletePod("review-a1", "pod-uid-1"),
        EnsureLease("review-a2"),
        CreatePod(2, 3),
    ]


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        (world(record=record(PENDING), pods=(), lease=NO_LEASE), 3),
        (world(record=retried(1), pods=(), lease=lease(2, silent_for=46)), 2),
        (world(record=retried(1), pods=(dead_pod(1, 2),)), 1),
        (world(record=retried(2), pods=(dead_pod(1, 3, dead_for=60.0),)), 0),
        (replace(starting, pods=()), 3),
    ],
    ids=["first", "after a disruption", "after a failure", "the last one", "the same again"],
)
def test_a_pod_is_told_how_many_attempts_are_left_after_it(seen: RunWorld, left: int) -> None:
    (create,) = (a for a in actions(seen) if isinstance(a, CreatePod))
    assert create.retries_left == left


def test_a_living_pod_of_an_older_attempt_is_ended() -> None:
    seen = world(record=retried(1), pods=(pod(1), pod(2)), lease=lease(2))
    assert DeletePod("review-a1", "pod-uid-1") in actions(seen)
    assert DeletePod("review-a2", "pod-uid-2") not in actions(seen)


def test_a_deleted_run_is_cancelled_and_settled_then_cleaned_then_let_go() -> None:
    first = actions(world(run=DELETING))
    assert first == (
        RequestCancel("Immediate", "Deleted"),
        SettleOrphan(RunStatus.CANCELLED, "Deleted", "The Run was deleted before it ended", FencingToken(7)),
    )
    ended = world(run=DELETING, record=settled(RunStatus.CANCELLED))
    assert DeletePod("review-a1", "pod-uid-1") in actions(ended)
    assert RemoveFinalizer() not in actions(ended)
    assert RemoveFinalizer() in actions(replace(ended, pods=()))


def test_a_deleted_run_goes_although_the_store_stays_away() -> None:
    away = world(run=DELETING, record=None, store_down_for=200.0, deleting_for=120.0)
    assert RemoveFinalizer() in actions(away)
    assert RemoveFinalizer() not in actions(replace(away, deleting_for=119.0))


def test_a_clock_that_steps_back_ends_nothing() -> None:
    seen = world(now=NOW - timedelta(days=2))
    assert rules.decided_by(seen)[0] == "claimed and a living pod: Running"


@pytest.mark.parametrize(
    ("exit_code", "changes", "loss", "reason"),
    [
        (0, {}, LossClass.RETRY, "ReceiptMissing"),
        (1, {}, LossClass.RETRY, "AgentCrashed"),
        (137, {}, LossClass.RETRY, "AgentCrashed"),
        (137, {"oom": True}, LossClass.RETRY, "OutOfMemory"),
        (75, {}, LossClass.RETRY, "AgentCrashed"),
        (75, {"reason": "ModelUnavailable"}, LossClass.RETRY, "ModelUnavailable"),
        (75, {"reason": "StoreUnavailable"}, LossClass.DISRUPTION, "StoreUnavailable"),
        (75, {"reason": "SchemaMismatch"}, LossClass.DISRUPTION, "SchemaMismatch"),
        (75, {"reason": "Drained"}, LossClass.DISRUPTION, "Drained"),
        (75, {"deleting": True}, LossClass.DISRUPTION, "Drained"),
        (143, {"disruption": "PreemptionByScheduler"}, LossClass.DISRUPTION, "Preempted"),
        (86, {}, LossClass.DISRUPTION, "SelfFenced"),
    ],
)
def test_an_exit_code_names_the_class_of_the_loss(
    exit_code: int, changes: dict[str, Any], loss: LossClass, reason: str
) -> None:
    taken = [a for a in actions(world(pods=(dead_pod(exit_code, **changes),))) if isinstance(a, Assign)]
    assert [(a.loss, a.reason) for a in taken] == [(loss, reason)]


def test_a_configuration_fault_ends_the_run_with_the_agents_own_reason() -> None:
    seen = world(pods=(dead_pod(78, reason="CheckpointIncompatible", message="written by mode Delta"),))
    settle = actions(seen)[0]
    assert settle == SettleOrphan(
        RunStatus.ERROR, "CheckpointIncompatible", "written by mode Delta", FencingToken(7)
    )


@pytest.mark.parametrize(
    ("oom", "reason"), [(False, Reason.BACKOFF_LIMIT_EXCEEDED), (True, Reason.OUT_OF_MEMORY)]
)
def test_the_last_retry_ends_as_what_the_reader_can_do_about_it(oom: bool, reason: Reason) -> None:
    (settle, *_) = actions(world(record=retried(3), pods=(dead_pod(137, 4, oom=oom),)))
    assert isinstance(settle, SettleOrphan)
    assert settle.reason == reason
    assert ("raise the memory limit" in settle.message) is oom
    assert "3 retries are used up" in settle.message
