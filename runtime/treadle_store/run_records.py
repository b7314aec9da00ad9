"""Runs as they are read: every fact of one run at one instant, in one query for many."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg

from treadle_api.records import (
    AttemptRow,
    FencingToken,
    Json,
    LossClass,
    Receipt,
    RunRecord,
    RunStatus,
    RunUID,
    ThreadID,
)
from treadle_store.pool import Executor
from treadle_store.statement import fetch_all


async def read_runs(db: Executor, run_ids: Sequence[RunUID]) -> dict[RunUID, RunRecord]:
    """The records of those runs that the store knows. For operator and gateway. Raises StoreError."""
    rows = await fetch_all(
        db, "SELECT * FROM treadle.run_records WHERE run_id = ANY ($1::text[])", list(run_ids)
    )
    return {record.run_id: record for record in map(_record, rows)}


async def list_unfinished(
    db: Executor,
    *,
    namespace: str | None = None,
    after: RunUID | None = None,
    limit: int = 500,
    ended_within_seconds: int = 600,
) -> list[RunRecord]:
    """A page of the runs that have not ended or ended lately, in order of run id behind `after`.

    For the operator's slow poll: "changed since the last look" would miss what commits late.
    """
    rows = await fetch_all(
        db,
        """
        WITH page AS (
          SELECT r.run_id FROM (
            SELECT o.run_id, o.namespace FROM treadle.runs o WHERE o.ended_at IS NULL
            UNION ALL
            SELECT e.run_id, e.namespace FROM treadle.runs e
             WHERE e.ended_at > now() - make_interval(secs => $4::integer)) r
           WHERE r.run_id > $1 AND ($2::text IS NULL OR r.namespace = $2)
           ORDER BY r.run_id LIMIT $3)
        SELECT * FROM treadle.run_records WHERE run_id IN (SELECT p.run_id FROM page p) ORDER BY run_id
        """,
        after or "",
        namespace,
        limit,
        ended_within_seconds,
    )
    return [_record(row) for row in rows]


def _record(row: asyncpg.Record) -> RunRecord:
    run_id = RunUID(row["run_id"])
    return RunRecord(
        run_id=run_id,
        namespace=row["namespace"],
        name=row["name"],
        thread_id=ThreadID(str(row["thread_id"])),
        thread_key=row["thread_key"],
        status=RunStatus(row["status"]),
        attempt=row["attempt"],
        token=FencingToken(row["token"]),
        thread_token=FencingToken(row["thread_token"]),
        active_run=None if row["active_run"] is None else RunUID(row["active_run"]),
        holder=row["holder"],
        queue_position=row["queue_position"],
        spec_hash=row["spec_hash"],
        config=row["config"],
        cancel=row["cancel_action"],
        stop_reason=row["stop_reason"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        attempts=tuple(_attempt(attempt) for attempt in row["attempts"]),
        retries=row["retries"],
        disruptions=row["disruptions"],
        checkpoint_id=row["checkpoint_id"],
        checkpoint_step=row["checkpoint_step"],
        usage=row["usage"],
        model=row["model"],
        log=row["log"],
        receipt=_receipt(run_id, row),
    )


def _receipt(run_id: RunUID, row: asyncpg.Record) -> Receipt | None:
    if row["receipt_payload"] is None:
        return None
    return Receipt(
        run_id=run_id,
        token=FencingToken(row["receipt_token"]),
        digest=row["receipt_digest"],
        payload=row["receipt_payload"],
        created_at=row["receipt_created_at"],
    )


def _attempt(row: Json) -> AttemptRow:
    return AttemptRow(
        attempt=row["attempt"],
        token=FencingToken(row["token"]),
        pod=row["pod"],
        pod_uid=row["pod_uid"],
        node=row["node"],
        started=datetime.fromisoformat(row["started"]),
        ended=_instant(row["ended"]),
        loss=None if row["class"] is None else LossClass(row["class"]),
        reason=row["reason"],
    )


def _instant(text: Any) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
