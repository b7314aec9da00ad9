"""`decide_thread`: what to do about one Thread, and what to show.

First match wins:
 1. deleted and our finalizer is gone: nothing
 2. deleted and Runs of it are unfinished: wait for them (retiring ends them where the policy is Delete)
 3. deleted, policy Delete, and the store does not answer: wait, then let go
 4. deleted: retire the row where the policy says so, then let go
 5. another Thread has the same threadID: say so, register nothing
 6. not registered: finalizer, register
 7. the projection of the store
"""

from typing import Any

from treadle_api.reasons import Reason
from treadle_operator.lifecycle.actions import (
    AddFinalizer,
    Decision,
    EmitEvent,
    RegisterThread,
    RemoveFinalizer,
    RetireThread,
    Status,
    ThreadDecision,
)
from treadle_operator.lifecycle.conditions import FALSE, TRUE, UNKNOWN, Condition, set_condition, stamp
from treadle_operator.lifecycle.status import carry
from treadle_operator.lifecycle.world import ThreadWorld

AGAIN = 10.0
LET_GO_AFTER = 120.0
"""Seconds for which a deleted Thread waits for a store that does not answer."""

_RIDERS = (("head",),)
_OUTCOMES = {"success": "Success", "error": "Error", "timeout": "Timeout", "cancelled": "Cancelled"}


def decide_thread(world: ThreadWorld) -> ThreadDecision:
    """Total, deterministic, stable, like `decide_run`."""
    if world.thread.deleting:
        return _deleted(world)
    if world.conflict:
        told = f"Thread {world.conflict} has the same threadID; delete one of the two"
        status = _status(world, (FALSE, Reason.THREAD_ID_CONFLICT, told), stalled=True)
        return Decision(status=status, requeue_after=AGAIN)
    finalizer = () if world.finalizer else (AddFinalizer(),)
    if world.row is None:
        if world.store_down_for is None:
            return Decision((*finalizer, RegisterThread(world.thread)), requeue_after=0.0)
        return Decision(status=_without_store(world), requeue_after=AGAIN)
    if not world.agent_exists:
        told = f"Agent {world.thread.agent} does not exist; create it"
        ready = (FALSE, Reason.AGENT_PENDING, told)
    else:
        ready = (TRUE, Reason.READY, "A Run could start now")
    return Decision(finalizer, _status(world, ready))


def _deleted(world: ThreadWorld) -> ThreadDecision:
    if not world.finalizer:
        return Decision()
    erase = world.deletion_policy == "Delete"
    if world.unfinished_runs and not erase:
        told = f"{world.unfinished_runs} Runs of the Thread are not finished; it goes when they are"
        status = _status(world, (FALSE, Reason.THREAD_DELETING, told))
        return Decision(status=status, requeue_after=AGAIN)
    if erase and world.store_down_for is not None:
        if world.deleting_for < LET_GO_AFTER:
            return Decision(status=_without_store(world), requeue_after=AGAIN)
        told = "The store does not answer; the Thread goes, what it stored stays: delete it again later"
        return Decision((EmitEvent("Warning", Reason.STORE_UNAVAILABLE, told), RemoveFinalizer()))
    if erase:
        return Decision((RetireThread(world.thread.thread_key), RemoveFinalizer()))
    return Decision((RemoveFinalizer(),))


def _without_store(world: ThreadWorld) -> Status | None:
    if world.status.get("conditions"):
        return None
    return _status(world, (UNKNOWN, Reason.STORE_UNAVAILABLE, "The store does not answer; it is tried again"))


def _status(world: ThreadWorld, ready: tuple[str, str, str], *, stalled: bool = False) -> Status:
    status: Status = {"observedGeneration": world.generation, "threadID": world.thread.thread_key}
    row = world.row
    if row is not None:
        before = int(world.status.get("fencingToken", 0))
        status["fencingToken"] = max(before, int(row.fencing_token))
        status["queuedRuns"] = row.queued
        if row.active is not None:
            active = row.active
            status["activeRun"] = {"name": active.name, "uid": active.uid, "attempt": active.attempt}
        if row.head is not None:
            status["head"] = {"checkpointID": row.head.checkpoint_id, "step": row.head.step}
        if row.last is not None:
            outcome = _OUTCOMES.get(row.last.outcome, "Error")
            status["lastRun"] = {"name": row.last.name, "outcome": outcome, "time": stamp(row.last.time)}
    conditions: list[Condition] = []
    if stalled:
        conditions.append(_condition(world, "Stalled", TRUE, *ready[1:]))
    elif ready[0] != TRUE:
        conditions.append(_condition(world, "Reconciling", TRUE, *ready[1:]))
    conditions.append(_condition(world, "Ready", *ready))
    if row is not None and row.active is not None:
        conditions.append(_condition(world, "Busy", TRUE, Reason.RUNNING, f"Run {row.active.name} may write"))
    status["conditions"] = conditions
    return carry(world.status, status, _RIDERS)


def _condition(world: ThreadWorld, kind: str, status: str, reason: str, message: str) -> Condition:
    previous: Any = world.status.get("conditions", ())
    return set_condition(
        previous, kind, status, str(reason), message, now=world.now, generation=world.generation
    )
