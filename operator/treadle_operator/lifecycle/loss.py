"""Evidence that an attempt is lost, what class of loss it is, and how long to wait before the next one.

Sources: 03-ownership "Takeover"; exit codes in `treadle_api.contract`. An exit code never proves success:
by the time a loss is judged the store has been asked and had no receipt.
"""

from dataclasses import dataclass

from treadle_api.contract import ExitCode
from treadle_api.reasons import Reason
from treadle_api.records import LossClass
from treadle_api.resolved import ResolvedRetry
from treadle_operator.lifecycle.conditions import word
from treadle_operator.lifecycle.world import PodView

LEASE_MARGIN = 5.0
"""Seconds of silence beyond the Lease's duration before its holder counts as lost."""
SECOND_LOOK = 1.0
"""Seconds to look again after a pod ended with 0 and no receipt was found."""

_DISRUPTIONS = {
    "PreemptionByScheduler": Reason.PREEMPTED,
    "EvictionByEvictionAPI": Reason.DRAINED,
    "DeletionByTaintManager": Reason.EVICTED,
    "DeletionByPodGC": Reason.POD_LOST,
    "TerminationByKubelet": Reason.EVICTED,
}

_STORE_TROUBLES: dict[str, str] = {
    Reason.STORE_UNAVAILABLE: "bring Postgres back, or correct the dsn in the store's Secret",
    Reason.SCHEMA_MISMATCH: "bring schema and image to the same release",
    Reason.STORE_FAILED_OVER: "fence the store's threads with treadle-migrate fence-all",
}
"""What an agent says of the store when it asks for another attempt, and the reader's next step. Not the
program's fault: an outage of a minute must not use up the few retries of every run."""


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt that will not give an answer any more."""

    kind: LossClass
    reason: str
    message: str
    lost_for: float = 0.0
    """Seconds since the loss was established, by the operator's monotonic clock."""
    final: bool = False
    """No other attempt can help: settle now."""


def of_pod(pod: PodView) -> Loss:
    """What a pod that is no longer alive says about its attempt."""
    end = pod.terminated
    if end is not None and end.exit_code == ExitCode.CONFIGURATION:
        reason = word(end.reason, Reason.CONFIGURATION_INVALID)
        message = end.message or f"Pod {pod.name} cannot run as configured; read its log, mend the Agent"
        return Loss(LossClass.RETRY, reason, message, pod.dead_for, final=True)
    if end is not None and end.oom:
        message = f"Pod {pod.name} was ended for memory; raise the memory limit in podTemplate.resources"
        return Loss(LossClass.RETRY, Reason.OUT_OF_MEMORY, message, pod.dead_for)
    if pod.disruption or pod.deleting or (end is not None and end.reason == Reason.DRAINED):
        reason = _DISRUPTIONS.get(pod.disruption, Reason.EVICTED if pod.disruption else Reason.DRAINED)
        return Loss(LossClass.DISRUPTION, reason, f"Pod {pod.name} had to leave its node", pod.dead_for)
    if end is None:
        message = f"Pod {pod.name} ended ({pod.phase}) without a word from its container"
        return Loss(LossClass.DISRUPTION, Reason.POD_LOST, message, pod.dead_for)
    said = f": {end.message}" if end.message else ""
    match end.exit_code:
        case ExitCode.ANSWERED:
            message = f"Pod {pod.name} ended well but left no receipt"
            return Loss(LossClass.RETRY, Reason.RECEIPT_MISSING, message, pod.dead_for)
        case ExitCode.FENCED:
            message = f"Pod {pod.name} stopped because its ownership was gone{said}"
            return Loss(LossClass.DISRUPTION, Reason.SELF_FENCED, message, pod.dead_for)
        case ExitCode.TRY_AGAIN if end.reason in _STORE_TROUBLES:
            message = f"Pod {pod.name} could not use the store{said}; {_STORE_TROUBLES[end.reason]}"
            return Loss(LossClass.DISRUPTION, end.reason, message, pod.dead_for)
        case ExitCode.TRY_AGAIN:
            message = f"Pod {pod.name} asked for another attempt{said}"
            return Loss(LossClass.RETRY, word(end.reason, Reason.AGENT_CRASHED), message, pod.dead_for)
        case code:
            message = f"Pod {pod.name} ended with exit code {code}{said}"
            return Loss(LossClass.RETRY, word(end.reason, Reason.AGENT_CRASHED), message, pod.dead_for)


def backoff(retry: ResolvedRetry, kind: LossClass, *, retries: int, disruptions: int) -> float:
    """Seconds between a loss and the next attempt: doubling, capped; a first disruption costs none."""
    if kind is LossClass.RETRY:
        doublings = retries
    elif disruptions == 0:
        return 0.0
    else:
        doublings = disruptions - 1
    return float(min(retry.backoff_cap_seconds, retry.backoff_seconds * 2 ** min(doublings, 30)))
