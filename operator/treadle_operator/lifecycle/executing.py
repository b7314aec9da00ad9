"""Rules 16-29: an admitted Run with an attempt, from its assignment to its loss or its end."""

from datetime import timedelta

from treadle_api import names
from treadle_api.contract import ExitCode
from treadle_api.reasons import Reason
from treadle_api.records import LossClass, RunStatus
from treadle_api.run_status import Phase
from treadle_operator.lifecycle.actions import (
    Assign,
    CreatePod,
    Decision,
    EnsureLease,
    RunAction,
    RunDecision,
    SettleOrphan,
)
from treadle_operator.lifecycle.conditions import FALSE, TRUE, word
from treadle_operator.lifecycle.ending import end_pods, revoke
from treadle_operator.lifecycle.loss import SECOND_LOOK, Loss, backoff
from treadle_operator.lifecycle.seen import Seen
from treadle_operator.lifecycle.starting import image_overdue, starting
from treadle_operator.lifecycle.status import Shown, unfinished
from treadle_operator.lifecycle.telling import decide

SETTLEMENT_SHOWN_AFTER = 1.0
"""Seconds of settlement that are not worth a status write."""
SOON = 0.5
"""Least seconds until a pass that waits for a deadline."""
REFUSED_AGAIN = 15.0
"""Seconds until a pod that was refused for now is tried again."""
AGENT_AGAIN = 10.0


def parked(seen: Seen) -> RunDecision | None:
    return Decision() if seen.record.status is RunStatus.PARKED else None


def active_deadline(seen: Seen) -> RunDecision | None:
    over = seen.active_for - seen.settings.timeouts.active_seconds
    if seen.record.attempt == 0 or over < 0 or seen.record.status is RunStatus.FINALIZING:
        return None
    told = f"The run took longer than {seen.settings.timeouts.active_seconds} s (timeouts.activeSeconds)"
    return _settle(seen, RunStatus.TIMEOUT, Reason.ACTIVE_DEADLINE_EXCEEDED, told)


def finalize_deadline(seen: Seen) -> RunDecision | None:
    world = seen.world
    patience = seen.settings.timeouts.finalize_seconds
    if seen.record.status is not RunStatus.FINALIZING or world.record_for < patience:
        return None
    told = f"The receipt was not written within {patience} s after the graph's end (timeouts.finalizeSeconds)"
    return _settle(seen, RunStatus.ERROR, Reason.FINALIZE_DEADLINE_EXCEEDED, told)


def second_look(seen: Seen) -> RunDecision | None:
    pod = seen.pod
    if pod is None or pod.alive or pod.terminated is None or pod.dead_for >= SECOND_LOOK:
        return None
    if pod.terminated.exit_code != ExitCode.ANSWERED:
        return None
    return Decision(requeue_after=SECOND_LOOK - pod.dead_for)


def final_loss(seen: Seen) -> RunDecision | None:
    loss = seen.loss
    if loss is None or not loss.final:
        return None
    return _settle(seen, RunStatus.ERROR, loss.reason, loss.message)


def budget_used(seen: Seen) -> RunDecision | None:
    loss, record, retry = seen.loss, seen.record, seen.settings.retry
    if loss is None:
        return None
    if loss.kind is LossClass.RETRY and seen.retries_left() == 0:
        told = f"{loss.message}; {record.retries} retries are used up (retry.backoffLimit)"
        # The reader's next action is that of the reason: more memory, here, and not a search for the cause.
        memory = loss.reason == Reason.OUT_OF_MEMORY
        reason = Reason.OUT_OF_MEMORY if memory else Reason.BACKOFF_LIMIT_EXCEEDED
        return _settle(seen, RunStatus.ERROR, reason, told)
    if loss.kind is LossClass.DISRUPTION and record.disruptions >= retry.max_disruptions:
        told = f"{loss.message}; {record.disruptions} disruptions are used up (retry.maxDisruptions)"
        return _settle(seen, RunStatus.ERROR, Reason.DISRUPTION_LIMIT_EXCEEDED, told)
    return None


def back_off(seen: Seen) -> RunDecision | None:
    world = seen.world
    loss = seen.loss
    if loss is None:
        return None
    left = _wait(seen, loss) - loss.lost_for
    if left <= 0:
        return None
    told = f"{loss.message}; the next attempt continues from the last checkpoint"
    shown = Shown(
        Phase.RECOVERING,
        Reason.RETRY_BACKOFF,
        told,
        owned=(FALSE, loss.reason),
        next_attempt=world.now + timedelta(seconds=left),
    )
    return decide(world, status=unfinished(world, shown), wake=max(SOON, left))


def takeover(seen: Seen) -> RunDecision | None:
    """The token is raised before anything else: whatever the old pod still does is refused from there on."""
    world, loss = seen.world, seen.loss
    if loss is None:
        return None
    attempt = seen.record.attempt + 1
    pod = names.pod_name(world.run.name, attempt)
    create = (CreatePod(attempt, seen.retries_left(loss)),) if world.agent is not None else ()
    told = f"{loss.message}; attempt {attempt} continues from the last checkpoint"
    shown = Shown(Phase.RECOVERING, loss.reason, told, owned=(FALSE, loss.reason))
    return decide(
        world,
        Assign(attempt, seen.record.thread_token, pod, loss.kind, loss.reason),
        *end_pods(world.pods),
        EnsureLease(pod),
        *create,
        status=unfinished(world, shown),
        wake=0.0,
    )


def running(seen: Seen) -> RunDecision | None:
    world = seen.world
    pod = seen.pod
    if not seen.claimed or pod is None:
        return None
    wake = max(SOON, min(seen.lease_limit - seen.silence, _active_left(seen)))
    settling = seen.record.status is RunStatus.FINALIZING
    if settling and world.record_for < SETTLEMENT_SHOWN_AFTER and world.run.status.get("phase"):
        return Decision(end_pods(seen.strays), requeue_after=SETTLEMENT_SHOWN_AFTER - world.record_for)
    if settling:
        told = "The graph ended; the settlement is being written"
        taken = (TRUE, Reason.TAKEN)
        shown = Shown(Phase.FINALIZING, Reason.FINALIZING, told, owned=taken, delivered_pending=True)
        left = seen.settings.timeouts.finalize_seconds - world.record_for
        return decide(
            world, *end_pods(seen.strays), status=unfinished(world, shown), wake=max(SOON, min(wake, left))
        )
    told = f"Attempt {seen.record.attempt} runs in pod {pod.name}"
    shown = Shown(Phase.RUNNING, Reason.RUNNING, told, owned=(TRUE, Reason.TAKEN))
    return decide(world, *end_pods(seen.strays), status=unfinished(world, shown), wake=wake)


def wait_out(seen: Seen) -> RunDecision | None:
    world = seen.world
    if not seen.claimed:
        return None
    told = (
        f"The pod of attempt {seen.record.attempt} is gone, which is no proof of its death;"
        f" its Lease is waited out for {seen.lease_limit:.0f} s"
    )
    shown = Shown(Phase.RECOVERING, Reason.LEASE_NOT_EXPIRED, told, owned=(FALSE, Reason.POD_LOST))
    wake = max(SOON, seen.lease_limit - seen.silence)
    return decide(world, *end_pods(seen.strays), status=unfinished(world, shown), wake=wake)


def image_grace(seen: Seen) -> RunDecision | None:
    world = seen.world
    pod = seen.pod
    grace = world.agent.image_pull_grace_seconds if world.agent is not None else 300
    if pod is None or not image_overdue(pod, grace):
        return None
    _, said = starting(world, pod)
    told = f"The image could not be pulled within {grace} s (imagePullGraceSeconds). {said}"
    return _settle(seen, RunStatus.ERROR, Reason.IMAGE_PULL_FAILED, told)


def starting_up(seen: Seen) -> RunDecision | None:
    world = seen.world
    pod = seen.pod
    if pod is None:
        return None
    reason, told = starting(world, pod)
    lease = world.lease
    repair = () if lease.exists and lease.pod == pod.name else (EnsureLease(pod.name),)
    wake = max(SOON, min(_start_left(seen), AGENT_AGAIN if reason != Reason.STARTING else _start_left(seen)))
    shown = Shown(Phase.STARTING, reason, told, owned=_last_loss(seen))
    return decide(world, *repair, *end_pods(seen.strays), status=unfinished(world, shown), wake=wake)


def pod_refused(seen: Seen) -> RunDecision | None:
    problem = seen.world.refused
    if problem is None or not problem.final:
        return None
    return _settle(seen, RunStatus.ERROR, problem.reason, problem.message)


def same_pod(seen: Seen) -> RunDecision:
    """The operator died between the assignment and the pod, or the pod was refused for now."""
    world, attempt = seen.world, seen.record.attempt
    pod = names.pod_name(world.run.name, attempt)
    left = max(SOON, _start_left(seen))
    create = CreatePod(attempt, seen.retries_left())
    again = (Assign(attempt, seen.record.thread_token, pod), EnsureLease(pod), create)
    if world.agent is None:
        told = "The Agent of the Thread does not exist; create it again, the pod is started from it"
        shown = Shown(Phase.STARTING, Reason.AGENT_PENDING, told, owned=_last_loss(seen))
        return decide(
            world, *end_pods(seen.strays), status=unfinished(world, shown), wake=min(AGENT_AGAIN, left)
        )
    if world.refused is not None:
        shown = Shown(Phase.STARTING, world.refused.reason, world.refused.message, owned=_last_loss(seen))
        return decide(world, *again, status=unfinished(world, shown), wake=min(REFUSED_AGAIN, left))
    return Decision((*end_pods(seen.strays), *again), requeue_after=0.0)


def _settle(seen: Seen, result: RunStatus, reason: str, message: str) -> RunDecision:
    actions: tuple[RunAction, ...] = (
        SettleOrphan(result, reason, message, seen.record.thread_token),
        *revoke(seen.record),
    )
    return Decision(actions, requeue_after=0.0)


def _wait(seen: Seen, loss: Loss) -> float:
    record = seen.record
    return backoff(seen.settings.retry, loss.kind, retries=record.retries, disruptions=record.disruptions)


def _active_left(seen: Seen) -> float:
    return seen.settings.timeouts.active_seconds - seen.active_for


def _start_left(seen: Seen) -> float:
    return min(seen.settings.timeouts.start_seconds - seen.start_for, _active_left(seen))


def _last_loss(seen: Seen) -> tuple[str, str] | None:
    """Owned=False with the reason of the attempt before, None while there was none."""
    before = seen.record.attempts[-2:-1]
    return (FALSE, word(before[0].reason, Reason.POD_LOST)) if before else None
