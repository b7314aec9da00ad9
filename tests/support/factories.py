"""Worlds for the tests of the pure core: an undisturbed Run in mid-flight, varied by keyword."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

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
from treadle_api.resolved import ResolvedRun
from treadle_operator.lifecycle.world import (
    AgentFacts,
    LeaseView,
    PodView,
    Prepared,
    RunObject,
    RunWorld,
    Terminated,
    ThreadObject,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
UID = "11111111-1111-1111-1111-111111111111"
HOLDER = "pod-uid-1/nonce"
THREAD = ThreadObject("team", "sales", "thread-uid", "reviewer", "sales")
AGENT = AgentFacts("reviewer", 1)
PREPARED = Prepared("hash", ResolvedRun().model_dump(mode="json"), {"messages": []})


def run_object(**changes: Any) -> RunObject:
    run = RunObject("team", "review", UID, 1, NOW - timedelta(minutes=1), "sales", finalizer=True)
    return replace(run, **changes)


def pod(attempt: int = 1, **changes: Any) -> PodView:
    view = PodView(f"review-a{attempt}", f"pod-uid-{attempt}", attempt, "Running", True, node="node-1")
    return replace(view, **changes)


def dead_pod(exit_code: int, attempt: int = 1, dead_for: float = 10.0, **changes: Any) -> PodView:
    end = Terminated(
        exit_code, changes.pop("reason", ""), changes.pop("message", ""), changes.pop("oom", False)
    )
    return pod(attempt, phase="Failed", alive=False, terminated=end, dead_for=dead_for, **changes)


def lease(attempt: int = 1, **changes: Any) -> LeaseView:
    return replace(LeaseView(True, f"pod-uid-{attempt}/nonce", f"review-a{attempt}", 1.0), **changes)


def attempt_row(attempt: int = 1, token: int = 7, **changes: Any) -> AttemptRow:
    row = AttemptRow(
        attempt, FencingToken(token), f"review-a{attempt}", None, None, NOW - timedelta(seconds=30),
        None, None, None,
    )  # fmt: skip
    return replace(row, **changes)


def record(status: RunStatus = RunStatus.RUNNING, **changes: Any) -> RunRecord:
    """A record that is consistent with its status; `settings` are ResolvedRun's fields."""
    settings = changes.pop("settings", {})
    pending = status is RunStatus.PENDING
    attempt = changes.get("attempt", 0 if pending else 1)
    claimed = status in (RunStatus.RUNNING, RunStatus.FINALIZING)
    rows = tuple(attempt_row(n, 6 + n) for n in range(1, attempt + 1))
    base = RunRecord(
        run_id=RunUID(UID),
        namespace="team",
        name="review",
        thread_id=ThreadID("thread"),
        thread_key="sales",
        status=status,
        attempt=attempt,
        token=FencingToken(0 if pending else 6 + attempt),
        thread_token=FencingToken(6 + attempt),
        active_run=RunUID(UID) if status.active else None,
        holder=f"pod-uid-{attempt}/nonce" if claimed else None,
        queue_position=0 if pending else -1,
        spec_hash="hash",
        config=ResolvedRun(**settings).model_dump(mode="json"),
        cancel=None,
        stop_reason=None,
        created_at=NOW - timedelta(minutes=1),
        started_at=None if pending else NOW - timedelta(seconds=30),
        ended_at=NOW if status.terminal else None,
        attempts=rows,
        retries=0,
        disruptions=0,
        checkpoint_id=None,
        checkpoint_step=None,
        usage={},
        model=None,
        log="1i1",
        receipt=None,
    )
    return replace(base, **changes)


def receipt(outcome: RunStatus = RunStatus.SUCCESS, token: int = 7, **payload: Any) -> Receipt:
    said = {
        "outcome": outcome.value,
        "reason": "Delivered" if outcome is RunStatus.SUCCESS else "AgentError",
        "message": "It ended",
        "presented": ["a.md"],
        "coverage": "True",
        **payload,
    }
    return Receipt(RunUID(UID), FencingToken(token), "d" * 64, said, NOW)


def settled(outcome: RunStatus = RunStatus.SUCCESS, **changes: Any) -> RunRecord:
    return record(outcome, receipt=receipt(outcome), **changes)


def retried(count: int, loss: LossClass = LossClass.RETRY, **changes: Any) -> RunRecord:
    """A record whose earlier `count` attempts were lost by this class."""
    rows = tuple(
        attempt_row(n, 6 + n, ended=NOW - timedelta(seconds=20), loss=loss, reason="AgentCrashed")
        for n in range(1, count + 1)
    )
    counts: dict[str, Any] = {"retries": count} if loss is LossClass.RETRY else {"disruptions": count}
    last = attempt_row(count + 1, 7 + count)
    return record(attempt=count + 1, attempts=(*rows, last), **counts, **changes)


def world(**changes: Any) -> RunWorld:
    """Attempt 1 runs: pod alive, Lease fresh, claimed for a minute."""
    base = RunWorld(
        run=run_object(),
        now=NOW,
        seen_for=60.0,
        thread=THREAD,
        agent=AGENT,
        prepared=None,
        pods=(pod(),),
        lease=lease(),
        record=record(),
        record_for=60.0,
    )
    return replace(base, **changes)


def fresh(**changes: Any) -> RunWorld:
    """A Run at first sight: nothing is in the store, everything it needs is there."""
    base = world(
        run=run_object(finalizer=False), record=None, pods=(), lease=LeaseView(False), prepared=PREPARED,
        record_for=0.0, seen_for=0.0,
    )  # fmt: skip
    return replace(base, **changes)
