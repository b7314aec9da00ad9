"""The event log: appended under the fencing token, read by seq."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from treadle_api.records import (
    Appended,
    Capability,
    Event,
    FencingToken,
    Json,
    RunUID,
    StoredEvent,
    ThreadID,
)
from treadle_store.pool import Executor
from treadle_store.sanitise import clean_payload
from treadle_store.statement import fenced, fetch_all


def event_rows(events: Sequence[Event]) -> list[Json]:
    """The events as `append_events` and `commit_step` take them, cleaned (`sanitise`)."""
    return [
        {
            "id": str(event.event_id),
            "type": event.type,
            "task": event.task_id,
            "payload": clean_payload(event.payload),
        }
        for event in events
    ]


async def append_events(
    db: Executor, cap: Capability, events: Sequence[Event], *, retry: bool = False
) -> Appended:
    """Appends at most 1000 events in their order, gap-free, in one statement.

    `retry` says that the same batch, or the beginning of it, may have been committed before with its
    acknowledgement lost: what is there is left out, and `new` counts the rest.

    Raises StaleToken, StoreFailedOver, StoreUnavailable, StoreRejected (a reserved type; an id that is there
    already, without `retry`).
    """
    row = await fenced(db, cap, "append_events", "$5::jsonb, $6::boolean", event_rows(events), retry)
    return Appended(first=row["first_seq"], last=row["last_seq"], new=row["added"], cancel=row["cancel"])


async def list_events(
    db: Executor,
    thread_id: ThreadID,
    *,
    after_seq: int = 0,
    run_id: RunUID | None = None,
    types: Sequence[str] | None = None,
    task_id: str | None = None,
    limit: int = 500,
) -> list[StoredEvent]:
    """A page of the thread's log behind `after_seq`, in order of seq. For operator and gateway.

    The cursor of the next page is the last event's seq. Raises StoreError.
    """
    filters: list[tuple[str, Any]] = [("thread_id = {}::uuid", thread_id), ("seq > {}::bigint", after_seq)]
    if run_id is not None:
        filters.append(("run_id = {}::text", run_id))
    if types is not None:
        filters.append(("type = ANY ({}::text[])", list(types)))
    if task_id is not None:
        filters.append(("task_id = {}::text", task_id))
    # One plan per set of filters: with "OR $n IS NULL" a generic plan would read the whole thread.
    where = " AND ".join(text.format(f"${place}") for place, (text, _) in enumerate(filters, start=1))
    rows = await fetch_all(
        db,
        f"SELECT seq, event_id, run_id, type, payload, token, created_at, task_id FROM treadle.run_events"  # noqa: S608
        f" WHERE {where} ORDER BY seq LIMIT {int(limit)}",
        *(value for _, value in filters),
    )
    return [_stored(row) for row in rows]


def _stored(row: asyncpg.Record) -> StoredEvent:
    return StoredEvent(
        seq=row["seq"],
        event_id=row["event_id"],
        run_id=RunUID(row["run_id"]),
        type=row["type"],
        payload=row["payload"],
        token=FencingToken(row["token"]),
        created_at=row["created_at"],
        task_id=row["task_id"],
    )
