"""The Thread: one lineage of state. Its Runs follow one another; one at a time can write."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from treadle_api.meta import (
    TOKEN_LIMIT,
    AgentRef,
    Column,
    Kind,
    ObjectMeta,
    ObjectStatus,
    token_never_falls,
)
from treadle_api.rules import ApiModel, Int32, Int64, Rule, Time, Worded, immutable


class DeletionPolicy(StrEnum):
    """What becomes of the stored state when the Thread is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class Outcome(StrEnum):
    """How a run ended."""

    SUCCESS = "Success"
    ERROR = "Error"
    TIMEOUT = "Timeout"
    CANCELLED = "Cancelled"


class ThreadSpec(ApiModel):
    """Which agent, and which lineage of state."""

    rules = immutable(("agentRef",), ("threadID",), "create another Thread")

    agent_ref: AgentRef
    """The Agent that all Runs of this Thread execute."""
    thread_id: (
        Annotated[
            str,
            Field(min_length=1, max_length=128),
            Worded(
                "[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?",
                "use letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
            ),
        ]
        | None
    ) = None
    """The state's key in the namespace; a Thread created again with it goes on from there. Unset: the uid."""
    max_queued_runs: Int32 = Field(default=100, ge=0, le=1000)
    """Runs that may wait; one more is refused with QueueFull."""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """What becomes of the stored state when the Thread is deleted."""


class ActiveRun(ApiModel):
    """The Run that may write now."""

    name: str = Field(max_length=63)
    """Its name."""
    uid: str | None = Field(default=None, max_length=36)
    """Its uid."""
    attempt: Int32 | None = Field(default=None, ge=0)
    """Its current attempt, from 1."""


class Head(ApiModel):
    """The newest checkpoint."""

    checkpoint_id: str | None = Field(default=None, max_length=128)
    """LangGraph's id of it."""
    step: Int64 | None = None
    """The graph's step that wrote it."""


class LastRun(ApiModel):
    """The Run that ended last."""

    name: str = Field(max_length=63)
    """Its name."""
    outcome: Outcome | None = None
    """How it ended."""
    time: Time | None = None
    """When it ended."""


class ThreadObjectStatus(ObjectStatus):
    """What the operator knows of the Thread; a projection of the store."""

    rules = (*ObjectStatus.rules, *token_never_falls("fencingToken"))

    thread_id: str | None = Field(default=None, max_length=128)
    """The key of the state within the namespace, resolved."""
    active_run: ActiveRun | None = None
    """The Run that may write now."""
    queued_runs: Int32 | None = Field(default=None, ge=0)
    """Runs that wait for their turn."""
    fencing_token: Int64 | None = Field(default=None, ge=0, lt=TOKEN_LIMIT)
    """Rises with every assignment; only its newest value can write."""
    head: Head | None = None
    """The newest checkpoint."""
    last_run: LastRun | None = None
    """The Run that ended last."""


class Thread(ApiModel):
    """A Thread is one lineage of an agent's state: messages, files, checkpoints. Runs add to it in turn."""

    kind: ClassVar[Kind] = Kind(
        "Thread",
        "threads",
        "thr",
        columns=(
            Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
            Column("Active", "string", ".status.activeRun.name"),
            Column("Queued", "integer", ".status.queuedRuns"),
            Column("Last", "string", ".status.lastRun.name"),
            Column("Outcome", "string", ".status.lastRun.outcome"),
            Column("Age", "date", ".metadata.creationTimestamp"),
            Column("Token", "integer", ".status.fencingToken", wide=True),
            Column("Agent", "string", ".spec.agentRef.name", wide=True),
            Column("Step", "integer", ".status.head.step", wide=True),
        ),
        selectable=(".spec.agentRef.name",),
    )
    rules = (
        Rule(
            "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
            "metadata.name: a Thread's name may have at most 63 characters and no dots (it becomes a label"
            " value): choose another name",
            holds=lambda t: len(t.metadata.name) <= 63 and "." not in t.metadata.name,
        ),
        Rule("!has(oldSelf.status) || has(self.status)", "status cannot be removed: keep it", field="status"),
    )

    metadata: ObjectMeta = ObjectMeta()
    """Name, namespace, labels and so on."""
    spec: ThreadSpec
    """Which agent, and which lineage of state."""
    status: ThreadObjectStatus = ThreadObjectStatus()
    """What the operator knows of it."""
