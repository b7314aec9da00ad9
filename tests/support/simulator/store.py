"""The store's predicates (03-ownership), in memory: who may write, who may be assigned, how a run ends.

Each method is one statement: it happens whole, at one instant, or not at all. What a caller learns of it is
another matter: `call` loses answers before or after the effect.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from support.simulator.loop import Broken, Loop, Refused, Unavailable
from treadle_api.records import (
    AttemptRow,
    FencingToken,
    LossClass,
    Receipt,
    RunRecord,
    RunStatus,
    RunUID,
    ThreadID,
)

EPOCH = datetime(2026, 3, 1, tzinfo=UTC)
_T = TypeVar("_T")
_ASSIGNABLE = (RunStatus.PENDING, RunStatus.ASSIGNED, RunStatus.RUNNING, RunStatus.FINALIZING)


@dataclass(frozen=True, slots=True)
class Capability:
    run: str
    token: int
    key: float


@dataclass(slots=True)
class Row:
    uid: str
    name: str
    created: datetime
    config: dict[str, Any]
    status: RunStatus = RunStatus.PENDING
    attempt: int = 0
    token: int = 0
    attempts: tuple[AttemptRow, ...] = ()
    retries: int = 0
    disruptions: int = 0
    cancel: str | None = None
    started: datetime | None = None
    ended: datetime | None = None
    reason: str | None = None
    receipt: Receipt | None = None
    steps: int = 0
    """Steps of the graph that are durable: what the next attempt continues from."""


@dataclass(slots=True)
class Store:
    loop: Loop
    rows: dict[str, Row] = field(default_factory=dict)
    registered: bool = False
    token: int = 0
    key: float = 0.0
    active: str | None = None
    holder: str | None = None
    pod_key: tuple[str, float] = ("", 0.0)
    down_until: float = 0.0
    changes: int = 0
    """Statements so far; while nothing moved, nothing needs to be checked."""
    clock_step: float = 0.0

    def clock(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.now + self.clock_step)

    def call(self, statement: Callable[[], _T]) -> _T:
        """One statement over a network that loses calls and answers."""
        self.reach()
        self.changes += 1
        answer = statement()
        if self.loop.chance(0.02):
            raise Unavailable
        return answer

    def reach(self) -> None:
        """The way there; a reading needs no more."""
        if self.loop.now < self.down_until or self.loop.chance(0.02):
            raise Unavailable

    # operator

    def admit(self, uid: str, name: str, created: datetime, config: dict[str, Any]) -> None:
        self.registered = True
        if uid not in self.rows:
            self.rows[uid] = Row(uid, name, created, config)

    def assign(
        self, uid: str, attempt: int, expected: int, pod: str, loss: LossClass | None, reason: str | None
    ) -> str | None:
        """The pod key, or None: the token moved, another run comes first, the run has ended."""
        row = self.rows[uid]
        current = row.attempts[-1] if row.attempts else None
        same = current is not None and (current.attempt, current.pod) == (attempt, pod)
        if same and row.status is RunStatus.ASSIGNED and row.token == self.token:
            return f"{self.key}"
        free = self.active in (None, uid)
        if self.token != expected or not free or row.status not in _ASSIGNABLE or row.attempt != attempt - 1:
            return None
        if row.status is RunStatus.PENDING and self._queue()[0] != uid:
            return None
        now = self.clock()
        if current is not None:
            closed = replace(current, ended=now, loss=loss, reason=reason)
            row.attempts = (*row.attempts[:-1], closed)
            row.retries += loss is LossClass.RETRY
            row.disruptions += loss is LossClass.DISRUPTION
        self._mint()
        self.active, self.holder, self.pod_key = uid, None, (pod, self.key)
        row.status, row.attempt, row.token = RunStatus.ASSIGNED, attempt, self.token
        row.started = row.started or now
        fresh = AttemptRow(attempt, FencingToken(self.token), pod, None, None, now, None, None, None)
        row.attempts = (*row.attempts, fresh)[-10:]
        return f"{self.key}"

    def settle_orphan(self, uid: str, expected: int, outcome: RunStatus, reason: str) -> None:
        row = self.rows[uid]
        if row.status.terminal:
            return
        if self.token != expected:
            raise Refused
        if row.status is not RunStatus.PENDING:
            self._mint()
        self._end(row, outcome, reason, self.token)

    def request_cancel(self, uid: str, action: str) -> None:
        row = self.rows[uid]
        if not row.status.terminal:
            row.cancel = row.cancel or action

    # agent

    def take_assignment(self, pod: str, key: str, pod_uid: str) -> Capability | None:
        run = self.rows.get(self.active or "")
        open_ = run is not None and run.status in (RunStatus.ASSIGNED, RunStatus.RUNNING)
        if run is None or not open_ or self.pod_key != (pod, self.key) or key != f"{self.key}":
            return None
        if self.holder is not None and self.holder.partition("/")[0] != pod_uid:
            return None
        return Capability(run.uid, self.token, self.key)

    def claim(self, cap: Capability, holder: str) -> int:
        row = self.fenced(cap)
        if self.holder not in (None, holder):
            raise Refused
        if row.status not in (RunStatus.ASSIGNED, RunStatus.RUNNING):
            raise Refused
        self.holder, row.status = holder, RunStatus.RUNNING
        last = replace(row.attempts[-1], pod_uid=holder.partition("/")[0])
        row.attempts = (*row.attempts[:-1], last)
        return row.steps

    def commit_step(self, cap: Capability, step: int) -> None:
        row = self.fenced(cap)
        if step not in (row.steps, row.steps + 1):
            raise Broken(f"{row.name}: step {step} follows step {row.steps}")
        row.steps = step

    def begin_finalizing(self, cap: Capability) -> None:
        row = self.fenced(cap)
        if row.cancel:
            raise Refused
        row.status = RunStatus.FINALIZING

    def settle(self, cap: Capability, outcome: RunStatus) -> None:
        row = self.rows[cap.run]
        if row.receipt is not None and row.receipt.token == cap.token:
            return
        row = self.fenced(cap)
        if row.cancel and outcome is RunStatus.SUCCESS:
            outcome = RunStatus.CANCELLED
        self._end(row, outcome, "Delivered" if outcome is RunStatus.SUCCESS else "AgentError", cap.token)

    def fenced(self, cap: Capability) -> Row:
        """The row, if the capability is the current one: the predicate of every write."""
        if (self.active, self.token, self.key) != (cap.run, cap.token, cap.key):
            raise Refused
        return self.rows[cap.run]

    # reading

    def record(self, uid: str) -> RunRecord | None:
        self.reach()
        row = self.rows.get(uid)
        return self._record(row) if row is not None else None

    def unfinished(self) -> list[RunRecord]:
        self.reach()
        return [self._record(row) for row in self.rows.values() if not row.status.terminal]

    def _record(self, row: Row) -> RunRecord:
        queue = self._queue() if row.status is RunStatus.PENDING else []
        return RunRecord(
            RunUID(row.uid), "team", row.name, ThreadID("thread"), "sales", row.status, row.attempt,
            FencingToken(row.token), FencingToken(self.token),
            RunUID(self.active) if self.active else None,
            self.holder if self.active == row.uid else None,
            queue.index(row.uid) if row.uid in queue else -1,
            "hash", row.config, row.cancel, row.reason, row.created, row.started, row.ended, row.attempts,
            row.retries, row.disruptions, None, row.steps, {}, None, "1i1", row.receipt,
        )  # fmt: skip

    def _queue(self) -> list[str]:
        pending = [r for r in self.rows.values() if r.status is RunStatus.PENDING]
        return [r.uid for r in sorted(pending, key=lambda r: (r.created, r.uid))]

    def _mint(self) -> None:
        self.token += 1
        self.key = self.loop.random.random()

    def _end(self, row: Row, outcome: RunStatus, reason: str, token: int) -> None:
        if row.receipt is not None or row.status.terminal:
            raise Broken(f"{row.name} ends twice")
        now = self.clock()
        said = {"outcome": outcome.value, "reason": reason, "message": f"It ended as {outcome.value}"}
        row.receipt = Receipt(RunUID(row.uid), FencingToken(token), f"receipt-{row.uid}", said, now)
        row.status, row.token, row.ended, row.reason = outcome, token, now, reason
        if self.active == row.uid:
            self.active = self.holder = None
