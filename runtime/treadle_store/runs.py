"""Runs as the operator moves them: admitted, assigned, cancelled, settled in an agent's place."""

from dataclasses import dataclass
from typing import Literal, cast

from treadle_api.contract import FILES_LIMIT, INPUT_BYTES_LIMIT
from treadle_api.records import Admission, Assigned, FencingToken, LossClass, RunStatus, RunUID, Settled
from treadle_store.errors import StoreError, StoreRejected
from treadle_store.pool import Executor, encode_json
from treadle_store.run_records import list_unfinished, read_runs
from treadle_store.sanitise import clean
from treadle_store.statement import fetch_one

__all__ = [
    "AdmitResult",
    "admit_run",
    "assign_run",
    "list_unfinished",
    "read_runs",
    "request_cancel",
    "settle_orphan",
]

_FILE_MODE = 0o644


@dataclass(frozen=True, slots=True)
class AdmitResult:
    """Answer of `admit_run`; `status` is the run's where it is in the store."""

    result: Literal["admitted", "exists", "thread_not_found", "queue_full"]
    status: RunStatus | None


async def admit_run(db: Executor, admission: Admission) -> AdmitResult:
    """Stores a Run with its input and files; idempotent by the run's uid. For the operator.

    Raises StoreRejected (`InputTooLarge`, `BlobTooLarge`).
    """
    run_input = clean(admission.input)
    size = len(encode_json(run_input).encode())
    if size > INPUT_BYTES_LIMIT:
        raise StoreRejected(
            "InputTooLarge", f"the input is {size} bytes as JSON, {INPUT_BYTES_LIMIT} are allowed"
        )
    if len(admission.files) > FILES_LIMIT:
        raise StoreRejected("InputTooLarge", f"{len(admission.files)} files, {FILES_LIMIT} are allowed")
    row = await fetch_one(
        db,
        "SELECT * FROM treadle.admit_run($1, $2, $3, $4::uuid, $5, $6, $7, $8, $9, $10::bytea[])",
        admission.run_id,
        admission.namespace,
        admission.name,
        admission.thread_id,
        admission.spec_hash,
        run_input,
        clean(admission.config),
        admission.object_created,
        [{"path": f.path, "media_type": f.media_type, "mode": _FILE_MODE} for f in admission.files],
        [f.data for f in admission.files],
    )
    if row is None:
        raise StoreError("admit_run answered no row")
    return AdmitResult(row["result"], None if row["status"] is None else RunStatus(row["status"]))


async def assign_run(
    db: Executor,
    *,
    run_id: RunUID,
    attempt: int,
    expected_token: FencingToken,
    pod: str,
    loss: LossClass | None = None,
    reason: str | None = None,
    node: str | None = None,
) -> Assigned | None:
    """Gives the thread to attempt `attempt` of the run: token + 1, every older writer dead. For the operator.

    `expected_token` is the thread's as it was observed. `loss`, `reason` and `node` close the attempt before.
    None: the world is not as it was observed (another token, not first in the queue, slot taken, ended); look
    again. Called again for the same attempt and pod while unclaimed, it answers the same.
    """
    row = await fetch_one(
        db,
        "SELECT * FROM treadle.assign_run($1, $2, $3, $4, $5, $6, $7)",
        run_id,
        attempt,
        expected_token,
        pod,
        None if loss is None else loss.value,
        reason,
        node,
    )
    if row is None:
        return None
    return Assigned(
        token=FencingToken(row["token"]),
        fence_key=row["fence_key"],
        pod_key=row["pod_key"],
        pod=pod,
        attempt=attempt,
    )


async def settle_orphan(
    db: Executor,
    *,
    run_id: RunUID,
    expected_token: FencingToken,
    outcome: RunStatus,
    reason: str,
    message: str,
) -> Settled | None:
    """Ends a run in its agent's place, under a new token. For the operator.

    `expected_token` is the thread's as it was observed (a pending run has no writer and needs none).
    `already`: the run has ended, with this outcome. None: the token moved on, or there is no such run; look
    again.
    """
    row = await fetch_one(
        db,
        "SELECT * FROM treadle.settle_orphan($1, $2, $3, $4, $5)",
        run_id,
        expected_token,
        outcome.value,
        reason,
        clean(message),
    )
    return None if row is None else Settled(result=row["result"], outcome=RunStatus(row["outcome"]))


async def confirm_incarnation(db: Executor) -> None:
    """Raises StoreFailedOver while the store is another incarnation than the one that gave its tokens out.

    Asked by a cancel of a run that cannot be there: every function looks at the incarnation before anything
    else, and there is none that does nothing but look.
    """
    await request_cancel(db, RunUID(""), "Graceful", "")


async def request_cancel(
    db: Executor, run_id: RunUID, action: str, reason: str
) -> tuple[RunStatus, str | None] | None:
    """Asks for a cancel, durably; the first action wins, and none is accepted once the run finalizes.

    Returns the run's status and the action that stands; None where there is no such run.
    """
    row = await fetch_one(db, "SELECT * FROM treadle.request_cancel($1, $2, $3)", run_id, action, reason)
    return None if row is None else (RunStatus(row["status"]), cast("str | None", row["cancel"]))
