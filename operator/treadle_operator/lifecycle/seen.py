"""What the rules ask of the world again and again, worked out once: who holds, who is lost, since when."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from pydantic import BaseModel, ConfigDict, ValidationError

from treadle_api.reasons import Reason
from treadle_api.records import AttemptRow, LossClass, RunRecord, RunStatus
from treadle_api.resolved import ResolvedLease, ResolvedRetry, ResolvedTimeouts
from treadle_operator.lifecycle.loss import LEASE_MARGIN, Loss, of_pod
from treadle_operator.lifecycle.world import PodView, RunWorld

_CLAIMED = (RunStatus.RUNNING, RunStatus.FINALIZING)


class Limits(BaseModel):
    """The part of a `ResolvedRun` by which the operator judges; the rest is the agent's to read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    lease: ResolvedLease = ResolvedLease()
    retry: ResolvedRetry = ResolvedRetry()
    timeouts: ResolvedTimeouts = ResolvedTimeouts()


def limits(record: RunRecord) -> Limits:
    """The run's resolved settings; built-in ones where a newer operator stored what this one cannot read."""
    try:
        return Limits.model_validate(record.config)
    except ValidationError:
        return Limits()


@dataclass(frozen=True)
class Seen:
    """An admitted, unfinished run, seen with its current attempt. Answers are worked out once per pass."""

    world: RunWorld
    record: RunRecord

    @cached_property
    def settings(self) -> Limits:
        return limits(self.record)

    def retries_left(self, loss: Loss | None = None) -> int:
        """What retry.backoffLimit still grants once `loss` is counted, too."""
        used = self.record.retries + (loss is not None and loss.kind is LossClass.RETRY)
        return max(0, self.settings.retry.backoff_limit - used)

    @property
    def claimed(self) -> bool:
        return self.record.status in _CLAIMED

    @property
    def row(self) -> AttemptRow | None:
        return self.record.attempts[-1] if self.record.attempts else None

    @cached_property
    def pod(self) -> PodView | None:
        """The pod of the current attempt: the holder's once there is a holder, else a living one."""
        mine = [p for p in self.world.pods if p.attempt == self.record.attempt]
        if self.claimed and self.record.holder:
            uid = self.record.holder.partition("/")[0]
            return next((p for p in mine if p.uid == uid), None)
        return next((p for p in mine if p.alive), mine[-1] if mine else None)

    @cached_property
    def strays(self) -> tuple[PodView, ...]:
        """Living pods of other attempts: fenced already, and in the way."""
        return tuple(
            p for p in self.world.pods if p.alive and not p.deleting and p.attempt != self.record.attempt
        )

    @property
    def lease_limit(self) -> float:
        """Seconds of silence after which the holder is lost; from the Agent, never from the Lease itself."""
        return self.settings.lease.duration_seconds + LEASE_MARGIN

    @property
    def silence(self) -> float:
        """Seconds without a sign of the run's holder.

        Never longer than the claim has been known: the Lease lies unchanged while an image is pulled, and
        one list of Leases may be older than the claim. What a foreign holder writes is no sign of ours.
        """
        lease, holder = self.world.lease, self.record.holder or ""
        foreign = bool(lease.holder) and lease.holder.partition("/")[0] != holder.partition("/")[0]
        return self.world.record_for if foreign else min(lease.silent_for, self.world.record_for)

    @property
    def released(self) -> bool:
        """Whether the holder has given the Lease back: proof that it writes no more, pod or no pod."""
        lease = self.world.lease
        return (
            self.claimed
            and lease.exists
            and not lease.holder
            and self.row is not None
            and (lease.pod == self.row.pod)
        )

    @property
    def active_for(self) -> float:
        """Seconds since the first assignment, by the clock of the world; at least what was watched of it."""
        first = self.record.started_at or (self.record.attempts[0].started if self.record.attempts else None)
        return self._at_least_watched(first)

    @property
    def start_for(self) -> float:
        """Seconds since the current attempt was assigned; at least what was watched of its wait."""
        return self._at_least_watched(self.row.started if self.row is not None else None)

    def _at_least_watched(self, since: datetime | None) -> float:
        """After a step ahead of the store's clock its new times lie in the future of the confirmed one:
        deadlines would wait for as long as the step was."""
        said = (self.world.now - since).total_seconds() if since is not None else 0.0
        return max(said, self.world.record_for)

    @cached_property
    def loss(self) -> Loss | None:
        """Why the current attempt will give no answer any more; None while it still may."""
        if self.record.attempt == 0:
            return None
        pod = self.pod
        if pod is not None and not pod.alive:
            return of_pod(pod)
        return self._holder_lost(pod) if self.claimed else self._never_claimed()

    def _holder_lost(self, pod: PodView | None) -> Loss | None:
        over = self.silence - self.lease_limit
        if over >= 0:
            message = f"The holder of attempt {self.record.attempt} has been silent for too long"
            return Loss(LossClass.DISRUPTION, Reason.LEASE_EXPIRED, message, over)
        if pod is None and self.released:
            message = f"The pod of attempt {self.record.attempt} is gone and has released its Lease"
            return Loss(LossClass.DISRUPTION, Reason.POD_LOST, message, self.silence)
        return None

    def _never_claimed(self) -> Loss | None:
        over = self.start_for - self.settings.timeouts.start_seconds
        if over >= 0:
            message = (
                f"Attempt {self.record.attempt} did not start within"
                f" {self.settings.timeouts.start_seconds} s (timeouts.startSeconds)"
            )
            return Loss(LossClass.RETRY, Reason.START_DEADLINE_EXCEEDED, message, over)
        return None
