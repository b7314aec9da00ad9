"""Rules 1-5 and 7-9: deletion, receipts, the end of a Run and what is cleaned up after it."""

from treadle_api.reasons import Reason
from treadle_api.records import RunRecord, RunStatus
from treadle_api.run_status import Phase
from treadle_operator.lifecycle import outcome
from treadle_operator.lifecycle.actions import (
    Decision,
    DeleteLease,
    DeletePod,
    EmitEvent,
    RemoveFinalizer,
    RequestCancel,
    RevokeStream,
    RunAction,
    RunDecision,
    SettleOrphan,
)
from treadle_operator.lifecycle.seen import limits
from treadle_operator.lifecycle.status import Shown, unfinished
from treadle_operator.lifecycle.telling import decide
from treadle_operator.lifecycle.world import PodView, Problem, RunWorld
from treadle_operator.selection import FINISHED_PHASES

LINGER = 5.0
"""Seconds between two looks at something that should be gone soon."""
LET_GO_AFTER = 120.0
"""Seconds after which a deleted Run goes even though its run could not be settled: the store's row is found
without its object later and settled then (`orphan.decide_orphan`)."""


def deleted_and_free(world: RunWorld) -> RunDecision | None:
    if world.run.deleting and not world.run.finalizer:
        return Decision()
    return None


def deleted_without_store(world: RunWorld) -> RunDecision | None:
    if not world.run.deleting or world.store_down_for is None:
        return None
    if world.deleting_for < LET_GO_AFTER:
        return Decision(end_pods(world.pods), requeue_after=LINGER)
    told = "The store does not answer; the Run goes and its record is settled when the store is back"
    event = EmitEvent("Warning", Reason.STORE_UNAVAILABLE, told)
    return Decision((*end_pods(world.pods), event, *free_lease(world), RemoveFinalizer()))


def deleted_unknown(world: RunWorld) -> RunDecision | None:
    if world.run.deleting and world.record is None:
        return Decision((*end_pods(world.pods), *free_lease(world), RemoveFinalizer()))
    return None


def deleted_unfinished(world: RunWorld) -> RunDecision | None:
    record = world.record
    if not world.run.deleting or record is None or record.status.terminal:
        return None
    intent = () if record.cancel else (RequestCancel("Immediate", Reason.DELETED),)
    settle = SettleOrphan(
        RunStatus.CANCELLED, Reason.DELETED, "The Run was deleted before it ended", record.thread_token
    )
    return Decision((*intent, settle), requeue_after=0.0)


def deleted_ended(world: RunWorld) -> RunDecision | None:
    if not world.run.deleting or world.record is None:
        return None
    if end_pods(world.pods) and world.deleting_for < LET_GO_AFTER:
        return Decision((*revoke(world.record), *end_pods(world.pods)), requeue_after=LINGER)
    rest: tuple[RunAction, ...] = (*free_lease(world), RemoveFinalizer())
    return Decision((*revoke(world.record), *end_pods(world.pods), *rest))


def stands(world: RunWorld) -> RunDecision | None:
    """Refused before admission, or the store was set back to a time before the end: Finished is final."""
    record = world.record
    if not world.run.finished or (record is not None and outcome.verified(record) is not None):
        return None
    actions: list[RunAction] = list(end_pods(world.pods))
    if record is not None and not record.status.terminal:
        told = "The store was set back to a time before the Run ended"
        reason = Reason.CHECKPOINT_MISSING
        actions.append(SettleOrphan(RunStatus.ERROR, reason, told, record.thread_token))
        return Decision(tuple(actions), _renewed(world), requeue_after=LINGER)
    return Decision((*actions, *free_lease(world), *let_go(world)), _renewed(world))


def receipt(world: RunWorld) -> RunDecision | None:
    record = world.record
    proof = outcome.verified(record) if record is not None else None
    if record is None or proof is None:
        return None
    # A finished Run without its phase is in the watch again and lost more than that: it gets all of it back.
    whole = world.run.finished and world.run.status.get("phase") in FINISHED_PHASES
    status = _renewed(world) if whole else outcome.settled(world, record, proof)
    lingering = tuple(pod for pod in world.pods if pod.alive and not _may_leave_by_itself(world, record, pod))
    waiting = bool(end_pods(world.pods))
    if not world.run.finished or waiting:
        ending: tuple[RunAction, ...] = (*let_go(world), *end_pods(lingering))
        return decide(world, *ending, status=status, wake=LINGER if waiting else 0.0)
    left: tuple[RunAction, ...] = (*free_lease(world), *let_go(world))
    return Decision((*revoke(record), *left) if left else (), status)


def no_receipt(world: RunWorld) -> RunDecision | None:
    record = world.record
    if record is None or not record.status.terminal:
        return None
    patience = float(limits(record).timeouts.finalize_seconds)
    if world.record_for < patience:
        message = "The store says that the run ended; its receipt is being looked for"
        shown = Shown(Phase.FINALIZING, Reason.RECEIPT_PENDING, message, delivered_pending=True)
        return decide(world, status=unfinished(world, shown), wake=min(LINGER, patience - world.record_for))
    message = "The store says that the run ended, but holds no receipt under its last token"
    problem = Problem(Reason.RECEIPT_MISSING, message, final=True)
    actions: tuple[RunAction, ...] = (*let_go(world), *end_pods(world.pods))
    return decide(world, *actions, status=outcome.refused(world, problem), wake=LINGER)


def let_go(world: RunWorld) -> tuple[RemoveFinalizer, ...]:
    return (RemoveFinalizer(),) if world.run.finalizer else ()


def free_lease(world: RunWorld) -> tuple[DeleteLease, ...]:
    return (DeleteLease(),) if world.lease.exists else ()


def end_pods(pods: tuple[PodView, ...]) -> tuple[DeletePod, ...]:
    """For each that still has to be told. One that is being deleted is the kubelet's: on a lost node that may
    take for ever, and nothing waits for it, since it is fenced."""
    return tuple(DeletePod(pod.name, pod.uid) for pod in pods if pod.alive and not pod.deleting)


def revoke(record: RunRecord) -> tuple[RevokeStream, ...]:
    """The stream user of the run's last attempt; a later run's user has another token and stays."""
    if not record.attempts:
        return ()
    return (RevokeStream(record.thread_id, record.attempts[-1].token),)


def _may_leave_by_itself(world: RunWorld, record: RunRecord, pod: PodView) -> bool:
    """Whether this pod wrote the receipt itself a moment ago and is about to exit."""
    proof = record.receipt
    wrote_it = (
        proof is not None
        and bool(record.attempts)
        and pod.attempt == record.attempt
        and proof.token == record.attempts[-1].token
    )
    return wrote_it and world.record_for < limits(record).timeouts.finalize_seconds


def _renewed(world: RunWorld) -> dict[str, object] | None:
    if world.run.status.get("observedGeneration") == world.run.generation:
        return None
    return outcome.renewed(world)
