"""Threads as the operator keeps them: registered, read, retired."""

from dataclasses import dataclass

import asyncpg

from treadle_api.records import FencingToken, RunUID, ThreadID
from treadle_store.errors import StoreError
from treadle_store.pool import Executor
from treadle_store.statement import fetch_one

_COLUMNS = """
SELECT t.thread_id, t.namespace, t.thread_key, t.name, t.uid, t.agent, t.max_queued, t.fencing_token,
       t.active_run, t.holder, t.head_seq, t.deleted_at IS NOT NULL AS retired,
       t.thread_gen || 'i' || i.incarnation AS log,
       (SELECT count(*) FROM treadle.runs r WHERE r.thread_id = t.thread_id AND r.status = 'pending') AS
       queued
  FROM treadle.threads t CROSS JOIN treadle.store_incarnation i
"""


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread of the store, without its secret."""

    thread_id: ThreadID
    namespace: str
    thread_key: str
    name: str
    uid: str
    agent: str
    max_queued: int
    fencing_token: FencingToken
    active_run: RunUID | None
    holder: str | None
    head_seq: int
    queued: int
    log: str
    retired: bool


async def register_thread(
    db: Executor,
    namespace: str,
    thread_key: str,
    name: str,
    uid: str,
    agent: str,
    *,
    max_queued: int = 100,
    adopt: bool = False,
) -> ThreadRow:
    """Creates the thread's row or returns it; idempotent. For the operator.

    A re-created object (same name) adopts the row. Another name takes it only with `adopt`, when the caller
    knows that the object which had it is gone: otherwise StoreRejected (`ThreadIDConflict`). A retired thread
    comes back with a higher token and a new log.
    """
    row = await fetch_one(
        db,
        "SELECT * FROM treadle.register_thread($1, $2, $3, $4, $5, $6, $7)",
        namespace,
        thread_key,
        name,
        uid,
        agent,
        max_queued,
        adopt,
    )
    if row is None:
        raise StoreError("register_thread answered no row")
    return _thread(row)


async def retire_thread(db: Executor, namespace: str, thread_key: str, uid: str | None = None) -> bool:
    """Settles every open run of the thread as cancelled (`ThreadDeleting`) and removes its contents.

    Only the thread of the object `uid`, where that is given. True when this call retired it, False when it
    was retired before or is not there. For the operator; `Assigner.retire_thread` also ends who blocks it.
    """
    row = await fetch_one(db, "SELECT * FROM treadle.retire_thread($1, $2, $3)", namespace, thread_key, uid)
    return row is not None and row["retired"]


async def read_thread(db: Executor, thread_id: ThreadID) -> ThreadRow | None:
    """The thread's row, None where there is none. For operator and gateway. Raises StoreError."""
    row = await fetch_one(db, f"{_COLUMNS} WHERE t.thread_id = $1::uuid", thread_id)
    return None if row is None else _thread(row)


async def find_thread(db: Executor, namespace: str, thread_key: str) -> ThreadRow | None:
    """The thread of (namespace, threadID), None where there is none. For operator and gateway."""
    row = await fetch_one(
        db, f"{_COLUMNS} WHERE t.namespace = $1 AND t.thread_key = $2", namespace, thread_key
    )
    return None if row is None else _thread(row)


def _thread(row: asyncpg.Record) -> ThreadRow:
    return ThreadRow(
        thread_id=ThreadID(str(row["thread_id"])),
        namespace=row["namespace"],
        thread_key=row["thread_key"],
        name=row["name"],
        uid=row["uid"],
        agent=row["agent"],
        max_queued=row["max_queued"],
        fencing_token=FencingToken(row["fencing_token"]),
        active_run=None if row["active_run"] is None else RunUID(row["active_run"]),
        holder=row["holder"],
        head_seq=row["head_seq"],
        queued=row["queued"],
        log=row["log"],
        retired=row["retired"],
    )
