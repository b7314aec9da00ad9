"""Rules 6 and 10-15: from the first sight of a Run until its first attempt is assigned."""

from treadle_api import names
from treadle_api.reasons import Reason
from treadle_api.records import RunStatus
from treadle_api.run_status import Phase
from treadle_operator.lifecycle import outcome
from treadle_operator.lifecycle.actions import (
    AddFinalizer,
    Admit,
    Assign,
    CreatePod,
    CreateThread,
    Decision,
    EnsureLease,
    RunDecision,
)
from treadle_operator.lifecycle.ending import let_go
from treadle_operator.lifecycle.seen import Seen
from treadle_operator.lifecycle.status import Shown, overlaid, unfinished
from treadle_operator.lifecycle.telling import decide
from treadle_operator.lifecycle.world import Prepared, Problem, RunWorld

STORE_HICCUP = 5.0
"""Seconds for which a silent store is not worth a status write for every Run."""
STORE_AGAIN = 5.0
LOOK_AGAIN = 10.0
"""Seconds between two looks at something that another object's event may already have told."""
TURN_AGAIN = 30.0

_STORE_DOWN = "The store does not answer; nothing is lost and the Run goes on when it is back"
_IN_THE_END: dict[str, str] = {
    Reason.INPUT_PENDING: Reason.INPUT_UNAVAILABLE,
    Reason.AGENT_PENDING: Reason.AGENT_NOT_FOUND,
    Reason.THREAD_PENDING: Reason.THREAD_NOT_FOUND,
}
"""What a waiting reason is called once its deadline has passed."""


def store_down(world: RunWorld) -> RunDecision | None:
    down = world.store_down_for
    if down is None:
        return None
    if world.run.finished or down < STORE_HICCUP:
        return Decision(requeue_after=STORE_AGAIN)
    reason, message = Reason.STORE_UNAVAILABLE, _STORE_DOWN
    if world.store_failed_over:
        reason, message = Reason.STORE_FAILED_OVER, Reason.STORE_FAILED_OVER.advice
    status = overlaid(world, reason, message)
    return decide(world, status=status, wake=STORE_AGAIN)


def cannot_admit(world: RunWorld) -> RunDecision | None:
    if world.record is not None:
        return None
    problem = obstacle(world)
    if problem is None:
        return None
    if problem.final:
        return decide(world, *let_go(world), status=outcome.refused(world, problem), wake=0.0)
    left = world.run.start_seconds - world.seen_for
    if left <= 0:
        reason = _IN_THE_END.get(problem.reason, problem.reason)
        waited = f"{problem.message} (waited {world.run.start_seconds} s, timeouts.startSeconds)"
        refused = outcome.refused(world, Problem(reason, waited, True))
        return decide(world, *let_go(world), status=refused, wake=0.0)
    shown = Shown(Phase.PENDING, problem.reason, problem.message, rejected=True)
    return decide(world, status=unfinished(world, shown), wake=min(LOOK_AGAIN, left))


def obstacle(world: RunWorld) -> Problem | None:
    """What keeps this Run out of the store now; None: nothing (or only a Thread that we create)."""
    run, thread = world.run, world.thread
    if world.refused is not None:
        return world.refused
    if thread is None and run.template_agent is None:
        told = f"Thread {run.thread} does not exist; create it, or set threadTemplate in another Run"
        return Problem(Reason.THREAD_PENDING, told)
    if thread is not None and thread.deleting:
        told = f"Thread {run.thread} is being deleted; create it again when it is gone"
        return Problem(Reason.THREAD_DELETING, told)
    wanted = run.template_agent
    if thread is not None and wanted is not None and wanted != thread.agent:
        told = f"Thread {thread.name} belongs to Agent {thread.agent}, but threadTemplate names {wanted}"
        return Problem(Reason.THREAD_MISMATCH, told, final=True)
    if world.agent is None:
        name = thread.agent if thread is not None else wanted
        return Problem(Reason.AGENT_PENDING, f"Agent {name} does not exist; create it")
    if thread is None:
        return None
    if world.prepared is None:
        return Problem(Reason.INPUT_PENDING, "The Run's input has not been read yet")
    return world.prepared if isinstance(world.prepared, Problem) else None


def create_thread(world: RunWorld) -> RunDecision | None:
    if world.record is not None or world.thread is not None or world.run.template_agent is None:
        return None
    create = CreateThread(world.run.thread, world.run.template_agent)
    return Decision((*_finalizer(world), create), requeue_after=0.0)


def admit(world: RunWorld) -> RunDecision | None:
    if world.record is not None or world.thread is None or not isinstance(world.prepared, Prepared):
        return None
    action = Admit(world.thread, world.prepared, world.run.created)
    return Decision((*_finalizer(world), action), requeue_after=0.0)


def add_finalizer(world: RunWorld) -> RunDecision | None:
    if world.run.finalizer:
        return None
    return Decision((AddFinalizer(),), requeue_after=0.0)


def not_its_turn(world: RunWorld) -> RunDecision | None:
    record = world.record
    if record is None or record.status is not RunStatus.PENDING:
        return None
    if world.thread is not None and world.thread.deleting:
        told = f"Thread {world.run.thread} is being deleted; the Run ends with it"
        shown = Shown(Phase.QUEUED, Reason.THREAD_DELETING, told)
        return decide(world, status=unfinished(world, shown), wake=LOOK_AGAIN)
    if record.queue_position <= 0 and record.active_run in (None, record.run_id):
        return None
    told = f"Thread {world.run.thread} is busy; its runs take turns, oldest first"
    shown = Shown(Phase.QUEUED, Reason.THREAD_BUSY, told)
    return decide(world, status=unfinished(world, shown), wake=TURN_AGAIN)


def its_turn(world: RunWorld) -> RunDecision | None:
    record = world.record
    if record is None or record.status is not RunStatus.PENDING:
        return None
    attempt = record.attempt + 1
    pod = names.pod_name(world.run.name, attempt)
    create = (CreatePod(attempt, Seen(world, record).retries_left()),) if world.agent is not None else ()
    return Decision((Assign(attempt, record.thread_token, pod), EnsureLease(pod), *create), requeue_after=0.0)


def _finalizer(world: RunWorld) -> tuple[AddFinalizer, ...]:
    return () if world.run.finalizer else (AddFinalizer(),)
