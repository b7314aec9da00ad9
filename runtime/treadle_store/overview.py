"""What the operator asks beside single runs: a thread at a glance, living grants, the store's clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from treadle_api.records import FencingToken, RunStatus, RunUID, ThreadID
from treadle_store.errors import StoreError
from treadle_store.pool import Executor
from treadle_store.statement import fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class ThreadOverview:
    """A thread of the store at one instant, with its active run, newest checkpoint and last ended run."""

    thread_id: ThreadID
    uid: str
    retired: bool
    fencing_token: FencingToken
    queued: int
    active_run: RunUID | None
    active_name: str | None
    active_attempt: int | None
    checkpoint_id: str | None
    checkpoint_step: int | None
    last_name: str | None
    last_status: RunStatus | None
    last_ended: datetime | None


@dataclass(frozen=True, slots=True)
class Grant:
    """The authority of one living assignment, for the live wire's user."""

    namespace: str
    thread_id: ThreadID
    log: str
    token: FencingToken
    fence_key: bytes = field(repr=False)


async def view_thread(db: Executor, namespace: str, thread_key: str) -> ThreadOverview | None:
    """The thread of (namespace, threadID), None where there is none. For the operator. Raises StoreError."""
    row = await fetch_one(
        db,
        """
        SELECT t.thread_id, t.uid, t.deleted_at IS NOT NULL AS retired, t.fencing_token,
               (SELECT count(*) FROM treadle.runs r
                 WHERE r.thread_id = t.thread_id AND r.status = 'pending') AS queued,
               a.run_id AS active_run, a.name AS active_name, a.attempt AS active_attempt,
               c.checkpoint_id, c.step AS checkpoint_step,
               l.name AS last_name, l.status AS last_status, l.ended_at AS last_ended
          FROM treadle.threads t
          LEFT JOIN treadle.runs a ON a.run_id = t.active_run
          LEFT JOIN LATERAL (
            SELECT x.checkpoint_id, substring(x.metadata ->> 'step' FROM '^-?[0-9]{1,9}$')::integer AS step
              FROM treadle.checkpoints x WHERE x.thread_id = t.thread_id AND x.checkpoint_ns = ''
             ORDER BY x.token DESC, x.checkpoint_id DESC LIMIT 1) c ON true
          LEFT JOIN LATERAL (
            SELECT r.name, r.status, r.ended_at FROM treadle.runs r
             WHERE r.thread_id = t.thread_id AND r.ended_at IS NOT NULL
             ORDER BY r.ended_at DESC LIMIT 1) l ON true
         WHERE t.namespace = $1 AND t.thread_key = $2
        """,
        namespace,
        thread_key,
    )
    if row is None:
        return None
    return ThreadOverview(
        thread_id=ThreadID(str(row["thread_id"])),
        uid=row["uid"],
        retired=row["retired"],
        fencing_token=FencingToken(row["fencing_token"]),
        queued=row["queued"],
        active_run=None if row["active_run"] is None else RunUID(row["active_run"]),
        active_name=row["active_name"],
        active_attempt=row["active_attempt"],
        checkpoint_id=row["checkpoint_id"],
        checkpoint_step=row["checkpoint_step"],
        last_name=row["last_name"],
        last_status=None if row["last_status"] is None else RunStatus(row["last_status"]),
        last_ended=row["last_ended"],
    )


async def living_grants(
    db: Executor, *, namespace: str | None = None, after: ThreadID | None = None, limit: int = 500
) -> Sequence[Grant]:
    """A page of the threads that an attempt may write to now, in order of id behind `after`.

    For the operator, which grants them again when Redis has lost its users. Raises StoreError.
    """
    rows = await fetch_all(
        db,
        """
        SELECT t.namespace, t.thread_id, t.fencing_token, t.fence_key,
               t.thread_gen || 'i' || i.incarnation AS log
          FROM treadle.threads t
          JOIN treadle.runs r ON r.run_id = t.active_run AND r.status IN ('assigned', 'running', 'finalizing')
         CROSS JOIN treadle.store_incarnation i
         WHERE ($1::text IS NULL OR t.namespace = $1)
           AND t.thread_id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000')
         ORDER BY t.thread_id LIMIT $3
        """,
        namespace,
        after,
        limit,
    )
    return [
        Grant(
            namespace=row["namespace"],
            thread_id=ThreadID(str(row["thread_id"])),
            log=row["log"],
            token=FencingToken(row["fencing_token"]),
            fence_key=row["fence_key"],
        )
        for row in rows
    ]


async def read_clock(db: Executor) -> datetime:
    """The store's time, with its zone. Raises StoreError."""
    row = await fetch_one(db, "SELECT clock_timestamp() AS now")
    if row is None:
        raise StoreError("the store's clock gave no answer")
    now: datetime = row["now"]
    return now
