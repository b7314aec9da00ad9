"""Plain frozen values that travel between the programs and the store.

They mirror SQL rows and JSON payloads; none of them knows how it is stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType
from uuid import UUID

RunUID = NewType("RunUID", str)
ThreadID = NewType("ThreadID", str)
FencingToken = NewType("FencingToken", int)

Json = dict[str, Any]


class RunStatus(StrEnum):
    """`runs.status`. The first five can still change; terminal is terminal."""

    PENDING = "pending"
    ASSIGNED = "assigned"
    RUNNING = "running"
    FINALIZING = "finalizing"
    PARKED = "parked"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL

    @property
    def active(self) -> bool:
        """Whether the run keeps its thread's slot."""
        return self in ACTIVE


TERMINAL = frozenset(
    {RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.TIMEOUT, RunStatus.CANCELLED, RunStatus.INTERRUPTED}
)
ACTIVE = frozenset({RunStatus.ASSIGNED, RunStatus.RUNNING, RunStatus.FINALIZING, RunStatus.PARKED})


class LossClass(StrEnum):
    """Why an attempt ended without an answer; each class has a budget of its own."""

    RETRY = "retry"
    """The program's own: crash, memory, late start, its model away. Counts against retry.backoffLimit."""
    DISRUPTION = "disruption"
    """The platform's: drain, eviction, node loss, store away. Counts against retry.maxDisruptions."""


@dataclass(frozen=True, slots=True)
class Capability:
    """What every fenced write carries: the number orders holders, the key proves it was given."""

    thread_id: ThreadID
    run_id: RunUID
    token: FencingToken
    fence_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What `take_assignment` gives to the one pod that may have it."""

    capability: Capability
    namespace: str
    run_name: str
    thread_key: str
    attempt: int
    log: str
    """`<thread_gen>i<incarnation>`: names the event log in stream keys and cursors."""
    config: Json
    """A `treadle_api.resolved.ResolvedRun`, as JSON."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One workspace file: `sha256` as lower-case hex, `size` in bytes, `mode` the permission bits."""

    path: str
    sha256: str
    size: int
    mode: int
    media_type: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole workspace at one moment, under an id that makes writing it idempotent."""

    manifest_id: UUID
    entries: tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """What `claim_run` answers: the state from which the attempt continues."""

    head_checkpoint: str | None
    head_seq: int
    input: Json
    files: tuple[ManifestEntry, ...]
    """Files of the Run's spec; their blobs are readable by this thread."""
    manifest: tuple[ManifestEntry, ...] | None
    """The newest workspace manifest of the thread, None where there is none yet."""
    manifest_run: RunUID | None
    """The run that wrote it: spec files are laid down only when it was not this run."""
    baseline: tuple[ManifestEntry, ...]
    """The workspace as it was before this run: what "produced" is compared with."""
    cancel: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """An event that is not yet in the log. `event_id` makes a repeated batch idempotent."""

    event_id: UUID
    type: str
    payload: Json
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of the log; `seq` counts from 1 within the thread without gaps."""

    seq: int
    event_id: UUID
    run_id: RunUID
    type: str
    payload: Json
    token: FencingToken
    created_at: datetime
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """Answer to a fenced append: the batch's seqs (`first` > `last` where nothing was new), cancel."""

    first: int
    last: int
    new: int
    cancel: str | None


@dataclass(frozen=True, slots=True)
class Settled:
    """Answer of a settlement: `settled`, `already` (a repeated call) or `cancel_won`."""

    result: str
    outcome: RunStatus


@dataclass(frozen=True, slots=True)
class Receipt:
    """A durable `run.delivery`. `digest` is the sha256 hex of the payload as stored."""

    run_id: RunUID
    token: FencingToken
    digest: str
    payload: Json
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt as the store knows it; `ended` and `loss` are None while it is the current one."""

    attempt: int
    token: FencingToken
    pod: str
    pod_uid: str | None
    node: str | None
    started: datetime
    ended: datetime | None
    loss: LossClass | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the operator reads it: its row, its thread's authority, its receipt, all of one instant."""

    run_id: RunUID
    namespace: str
    name: str
    thread_id: ThreadID
    thread_key: str
    status: RunStatus
    attempt: int
    token: FencingToken
    """Of the run's last assignment, 0 before the first."""
    thread_token: FencingToken
    active_run: RunUID | None
    holder: str | None
    queue_position: int
    """Pending runs of the thread ahead of this one; 0 = next. -1 when it is not pending."""
    spec_hash: str
    config: Json
    cancel: str | None
    stop_reason: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempts: tuple[AttemptRow, ...]
    """Newest last, at most 10."""
    retries: int
    disruptions: int
    checkpoint_id: str | None
    checkpoint_step: int | None
    usage: Json
    model: str | None
    log: str
    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class AdmitFile:
    """A file of the Run's spec with its bytes, copied into the store at admission."""

    path: str
    data: bytes = field(repr=False)
    media_type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Admission:
    """Everything `admit_run` stores of a Run."""

    run_id: RunUID
    namespace: str
    name: str
    thread_id: ThreadID
    spec_hash: str
    input: Json
    config: Json
    object_created: datetime
    files: Sequence[AdmitFile] = ()


@dataclass(frozen=True, slots=True)
class Assigned:
    """Answer of `assign_run`: the attempt's authority and the pod's key, for the operator's eyes."""

    token: FencingToken
    fence_key: bytes = field(repr=False)
    pod_key: str = field(repr=False)
    pod: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One entry of the live stream. `id` is `<seq>-<n>`: n = 0 a committed event, above 0 a delta."""

    id: str
    run_id: RunUID
    token: FencingToken
    type: str
    data: Mapping[str, Any]
