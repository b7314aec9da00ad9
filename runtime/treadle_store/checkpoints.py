"""Rows of the checkpoint tables, read and written under a run's capability. Knows nothing of LangGraph.

Values are `(type, data)` pairs whose meaning is the serializer's. Every function is one statement and raises
StaleToken when the capability is no longer current; nothing was written then.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import asyncpg

from treadle_api.records import Capability, FencingToken, Json
from treadle_store.errors import StaleToken
from treadle_store.pool import Executor, encode_json
from treadle_store.statement import CAPABILITY_SQL, capability_args, fenced, fetch_all

PAGE_LIMIT: Final = 100
"""Most checkpoints that one page of the history may hold."""

_READ_SQL: Final = f"SELECT * FROM treadle.read_checkpoint({CAPABILITY_SQL}, $5, $6)"  # noqa: S608

_LIST_SQL: Final = (
    f"SELECT * FROM treadle.list_checkpoints({CAPABILITY_SQL}, "  # noqa: S608 - literals of ours
    "$5, $6, $7, $8, $9, $10, $11, $12)"
)


class StoredValue(Protocol):
    """What every stored value has."""

    @property
    def channel(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def data(self) -> bytes: ...


class ChannelBlob(NamedTuple):
    """The value of one channel at one version."""

    channel: str
    version: str
    type: str
    data: bytes


class ChannelValue(NamedTuple):
    """A value as it is read back: of a channel at a checkpoint, or of a pending write."""

    channel: str
    type: str
    data: bytes


class WriteRow(NamedTuple):
    """One pending write of a task at a checkpoint. A negative `idx` (special channels) replaces its like."""

    ns: str
    checkpoint_id: str
    task_id: str
    task_path: str
    idx: int
    channel: str
    type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint to store. `checkpoint` holds inline values only; `blobs` those that are new at it."""

    ns: str
    id: str
    parent: str | None
    checkpoint: Json
    metadata: Json
    blobs: Sequence[ChannelBlob] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint with all its values. `writes` are `(task_id, value)` in the order live execution uses."""

    ns: str
    id: str
    parent: str | None
    token: FencingToken
    checkpoint: Json
    metadata: Json
    blobs: tuple[ChannelValue, ...] = field(repr=False)
    writes: tuple[tuple[str, ChannelValue], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeltaHistory:
    """What delta channels are replayed from: at most one seed per channel, writes oldest first."""

    inline_seeds: Json
    seeds: tuple[ChannelValue, ...]
    writes: tuple[tuple[str, ChannelValue], ...]


async def put_checkpoint(db: Executor, cap: Capability, row: CheckpointRow) -> None:
    """Store one checkpoint; a repeated put replaces its content and keeps its place in the history."""
    await fenced(
        db,
        cap,
        "put_checkpoint",
        "$5, $6, $7, $8, $9, $10, $11, $12, $13",
        row.ns,
        row.id,
        row.parent,
        encode_json(row.checkpoint),
        encode_json(row.metadata),
        *columns(row.blobs, 4),
    )


async def put_writes(db: Executor, cap: Capability, rows: Sequence[WriteRow]) -> None:
    """Store pending writes."""
    await fenced(db, cap, "put_writes", "$5, $6, $7, $8, $9, $10, $11, $12", *columns(rows, 8))


async def get_checkpoint(
    db: Executor, cap: Capability, ns: str, checkpoint_id: str | None
) -> StoredCheckpoint | None:
    """The named checkpoint, or without a name the latest: the highest (token, checkpoint id)."""
    head, *values = await fetch_all(db, _READ_SQL, *capability_args(cap), ns, checkpoint_id)
    if not head["held"]:
        raise StaleToken(f"read_checkpoint: token {cap.token} of run {cap.run_id} is not current")
    if head["checkpoint_id"] is None:
        return None
    blobs: list[ChannelValue] = []
    writes: list[tuple[str, ChannelValue]] = []
    for *_, task, channel, type_, data in values:
        value = ChannelValue(channel, type_, data)
        if task is None:
            blobs.append(value)
        else:
            writes.append((task, value))
    return _stored(head, tuple(blobs), tuple(writes))


async def list_checkpoints(
    db: Executor,
    cap: Capability,
    *,
    ns: str | None = None,
    checkpoint_id: str | None = None,
    metadata: Json | None = None,
    before: str | None = None,
    after: StoredCheckpoint | None = None,
    limit: int = PAGE_LIMIT,
) -> list[StoredCheckpoint]:
    """One page of the history, newest first; `after` is the last row of the page before.

    `metadata` must be contained in the checkpoint's own. `before` is a checkpoint id: only older ones.
    """
    rows = await fetch_all(
        db,
        _LIST_SQL,
        *capability_args(cap),
        ns,
        checkpoint_id,
        encode_json(metadata) if metadata else None,
        before,
        after.token if after else None,
        after.id if after else None,
        after.ns if after else None,
        min(limit, PAGE_LIMIT),
    )
    if not rows[0]["held"]:
        raise StaleToken(f"list_checkpoints: token {cap.token} of run {cap.run_id} is not current")
    return [
        _stored(row, _values(row, "blob_channels", "blob_types", "blobs"), _writes(row))
        for row in rows
        if row["checkpoint_id"] is not None
    ]


async def get_delta_history(
    db: Executor, cap: Capability, ns: str, checkpoint_id: str | None, channels: Sequence[str]
) -> DeltaHistory:
    """Seeds and writes of `channels` from the checkpoint's parent towards the root, along the pointers."""
    row = await fenced(db, cap, "get_delta_history", "$5, $6, $7", ns, checkpoint_id, list(channels))
    return DeltaHistory(
        inline_seeds=json.loads(row["inline_seeds"]),
        seeds=_values(row, "seed_channels", "seed_types", "seeds"),
        writes=_writes(row),
    )


async def newest_checkpoint_id(db: Executor, cap: Capability) -> str | None:
    """The highest checkpoint id of the thread in any namespace, None where there is no checkpoint."""
    row = await fenced(db, cap, "newest_checkpoint_id")
    newest: str | None = row["checkpoint_id"]
    return newest


async def delete_thread_checkpoints(db: Executor, cap: Capability) -> None:
    """Delete every checkpoint, blob and pending write of the thread."""
    await fenced(db, cap, "delete_thread_checkpoints")


async def delete_for_runs(db: Executor, cap: Capability, run_ids: Sequence[str]) -> None:
    """Delete what these runs stored on the thread. Not for a delta thread that lives on."""
    await fenced(db, cap, "delete_checkpoints_of_runs", "$5", list(run_ids))


async def prune_checkpoints(db: Executor, cap: Capability) -> None:
    """Keep per namespace the latest checkpoint and the ancestors that its delta channels replay from."""
    await fenced(db, cap, "prune_checkpoints")


async def copy_checkpoints(db: Executor, target: Capability, source: Capability) -> None:
    """Copy everything of one thread to another, both held by the caller; copies carry the target's token."""
    await fenced(db, target, "copy_checkpoints", "$5, $6, $7, $8", *capability_args(source))


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Rows as columns, for `unnest`; `width` empty ones without rows."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _stored(
    row: asyncpg.Record,
    blobs: tuple[ChannelValue, ...],
    writes: tuple[tuple[str, ChannelValue], ...],
) -> StoredCheckpoint:
    return StoredCheckpoint(
        ns=row["checkpoint_ns"],
        id=row["checkpoint_id"],
        parent=row["parent_checkpoint_id"],
        token=FencingToken(row["token"]),
        checkpoint=json.loads(row["checkpoint"]),
        metadata=json.loads(row["metadata"]),
        blobs=blobs,
        writes=writes,
    )


def _values(row: asyncpg.Record, channels: str, types: str, data: str) -> tuple[ChannelValue, ...]:
    return tuple(map(ChannelValue, row[channels], row[types], row[data]))


def _writes(row: asyncpg.Record) -> tuple[tuple[str, ChannelValue], ...]:
    values = _values(row, "write_channels", "write_types", "write_blobs")
    return tuple(zip(row["write_tasks"], values, strict=True))
