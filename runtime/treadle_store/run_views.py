"""A run as a reader of its stream sees it."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from treadle_api.records import RunStatus, RunUID, ThreadID
from treadle_store.pool import Executor
from treadle_store.statement import fetch_one


@dataclass(frozen=True, slots=True)
class RunView:
    """Where a run and the log of its thread stand, all of one instant.

    `first_seq` is the run's first event, None while it has none. `head_seq` is the thread's newest event.
    `settled`: the receipt exists; until then the run has not ended, whatever `status` says.
    """

    run_id: RunUID
    namespace: str
    name: str
    thread_id: ThreadID
    log: str
    status: RunStatus
    attempt: int
    head_seq: int
    first_seq: int | None
    settled: bool


_COLUMNS = """
SELECT r.run_id, r.namespace, r.name, r.thread_id::text AS thread_id,
       t.thread_gen || 'i' || i.incarnation AS log, r.status, r.attempt, t.head_seq,
       (SELECT min(e.seq) FROM treadle.run_events e WHERE e.run_id = r.run_id) AS first_seq,
       EXISTS (SELECT FROM treadle.receipts q
                WHERE q.run_id = r.run_id AND q.kind = 'run.delivery') AS settled
  FROM treadle.runs r
  JOIN treadle.threads t USING (thread_id)
 CROSS JOIN treadle.store_incarnation i
"""
_BY_UID = f"{_COLUMNS} WHERE r.run_id = $1"
_BY_NAME = f"{_COLUMNS} WHERE r.namespace = $1 AND r.name = $2 ORDER BY r.created_at DESC LIMIT 1"


async def view_run(db: Executor, run_id: RunUID) -> RunView | None:
    """The run of that uid. Raises StoreError."""
    return _view(await fetch_one(db, _BY_UID, run_id))


async def find_run(db: Executor, namespace: str, run: str) -> RunView | None:
    """The run of `namespace` with that uid, else the newest of that name (a re-created Run object is another
    run). Raises StoreError."""
    if _is_uid(run) and (view := await view_run(db, RunUID(run))) and view.namespace == namespace:
        return view
    return _view(await fetch_one(db, _BY_NAME, namespace, run))


def _is_uid(run: str) -> bool:
    try:
        return str(UUID(run)) == run
    except ValueError:
        return False


def _view(row: Any) -> RunView | None:
    if row is None:
        return None
    return RunView(
        run_id=RunUID(row["run_id"]),
        namespace=row["namespace"],
        name=row["name"],
        thread_id=ThreadID(row["thread_id"]),
        log=row["log"],
        status=RunStatus(row["status"]),
        attempt=row["attempt"],
        head_seq=row["head_seq"],
        first_seq=row["first_seq"],
        settled=row["settled"],
    )
