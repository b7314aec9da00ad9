"""Kubernetes Events: one for each transition that people would ask about, none for a repetition.

That the first attempt runs after it was said to start is what everybody expects: an undisturbed Run tells its
start and its end, as a Job does.
"""

from typing import Any

from treadle_api.reasons import Reason, ReasonGroup
from treadle_api.run_status import Phase
from treadle_operator.lifecycle.actions import Decision, EmitEvent, RunAction, RunDecision, Status
from treadle_operator.lifecycle.conditions import find
from treadle_operator.lifecycle.world import RunWorld

_GOOD = (Phase.PENDING, Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.FINALIZING, Phase.SUCCEEDED)
_GROUPS: dict[str, ReasonGroup] = {reason.value: reason.group for reason in Reason}
_QUIET = (ReasonGroup.PROGRESS, ReasonGroup.SUCCESS, ReasonGroup.CANCEL)


def decide(
    world: RunWorld, *actions: RunAction, status: Status | None, wake: float | None = None
) -> RunDecision:
    """A decision with the Event that the change of status is worth, if any."""
    events = () if status is None else _events(world, status)
    return Decision(actions=(*actions, *events), status=status, requeue_after=wake)


def _events(world: RunWorld, status: Status) -> tuple[EmitEvent, ...]:
    before, after = _gist(world.run.status), _gist(status)
    if before[:2] == after[:2]:
        return ()
    phase, reason, message = after
    if phase == Phase.RUNNING and before[:2] == (Phase.STARTING, Reason.STARTING) and status["attempt"] == 1:
        return ()
    calm = (phase in _GOOD and _group(reason) in _QUIET) or reason == Reason.THREAD_BUSY
    return (EmitEvent("Normal" if calm else "Warning", reason, message),)


def _gist(status: Any) -> tuple[str, str, str]:
    said = find(status.get("conditions", ()), "Succeeded") or {}
    return str(status.get("phase", "")), str(said.get("reason", "")), str(said.get("message", ""))


def _group(reason: str) -> ReasonGroup | None:
    """Where the reason belongs; None for one that is not in our list (a graph may have its own)."""
    return _GROUPS.get(reason)
