"""A Run's status: what the operator projects from the store, bounded to 32 KiB.

The rules are invariants that the operator can never need to break; chief among them: a success that no
receipt stands behind cannot be stored.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from treadle_api.meta import FENCE_ADVICE, TOKEN_LIMIT, ObjectStatus, ReasonWord, token_never_falls
from treadle_api.rules import ApiModel, Int32, Int64, Rule, Time, Unique, Worded, never_removed, same_once_set
from treadle_api.settings import Requirement
from treadle_api.thread import Outcome


class Phase(StrEnum):
    """One word for people; programs read the conditions."""

    PENDING = "Pending"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    FINALIZING = "Finalizing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def finished(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


class RunAgent(ApiModel):
    """The Agent as it was when the run was admitted."""

    name: str | None = Field(default=None, max_length=63)
    """Its name."""
    generation: Int64 | None = Field(default=None, ge=0)
    """Generation of its spec."""
    image_id: str | None = Field(default=None, max_length=512)
    """The image that the newest attempt really ran."""


class Ownership(ApiModel):
    """Who may write."""

    rules = token_never_falls("fencingToken")

    holder: str | None = Field(default=None, max_length=128)
    """`<pod uid>/<nonce>` of the process that claimed the thread."""
    fencing_token: Int64 | None = Field(default=None, ge=0, lt=TOKEN_LIMIT)
    """The token of the newest attempt."""
    lease_name: str | None = Field(default=None, max_length=63)
    """The Lease of the run."""
    acquired_time: Time | None = None
    """When the thread was claimed."""


class RunPod(ApiModel):
    """The pod of the newest attempt."""

    name: str | None = Field(default=None, max_length=63)
    """Its name."""
    uid: str | None = Field(default=None, max_length=36)
    """Its uid."""
    node: str | None = Field(default=None, max_length=253)
    """Its node."""


class CheckpointStatus(ApiModel):
    """The newest checkpoint of the run."""

    id: str | None = Field(default=None, max_length=128)
    """LangGraph's id of it."""
    step: Int64 | None = None
    """The graph's step that wrote it."""


class DeliveredArtifact(ApiModel):
    """A file that was presented, as the store hashed it."""

    path: str = Field(min_length=1, max_length=256)
    """Relative to the workspace."""
    sha256: Annotated[
        str, Field(max_length=64), Worded("[0-9a-f]{64}", "use the 64 lower-case hex digits of the sha256")
    ]
    """Of its bytes, in lower-case hex."""
    bytes: Int64 | None = Field(default=None, ge=0)
    """Its size."""
    media_type: str | None = Field(default=None, max_length=127)
    """Its media type."""


class DeliveryStatus(ApiModel):
    """The receipt."""

    rules = same_once_set("receiptID")

    receipt_id: str | None = Field(default=None, min_length=1, max_length=128)
    """Digest of the durable receipt; set once."""
    requirement: Requirement | None = None
    """What had to be presented."""
    produced: Int32 | None = Field(default=None, ge=0)
    """Files that are new or changed."""
    presented: Int32 | None = Field(default=None, ge=0)
    """Files that the agent presented."""
    matched: Int32 | None = Field(default=None, ge=0)
    """Declared patterns that a presented file matches."""
    coverage: str | None = Field(default=None, max_length=32)
    """The verdict on the requirement."""
    artifacts: Annotated[tuple[DeliveredArtifact, ...], Field(max_length=20), Unique("path")] = ()
    """The presented files, the first 20; the receipt in the store has all."""
    verified_time: Time | None = None
    """When the operator compared the receipt with the run's last assignment."""


class Usage(ApiModel):
    """What the run consumed, over all attempts."""

    input_tokens: Int64 | None = Field(default=None, ge=0)
    """Tokens sent to models."""
    output_tokens: Int64 | None = Field(default=None, ge=0)
    """Tokens received from models."""
    model_calls: Int64 | None = Field(default=None, ge=0)
    """Calls of models."""
    tool_calls: Int64 | None = Field(default=None, ge=0)
    """Calls of tools."""


class StreamStatus(ApiModel):
    """The live stream."""

    key: str | None = Field(default=None, max_length=253)
    """Its key on the wire."""


class Loss(StrEnum):
    """Whose fault the end of an attempt without an answer was."""

    RETRY = "Retry"
    DISRUPTION = "Disruption"


class AttemptStatus(ApiModel):
    """One attempt."""

    attempt: Int32 = Field(ge=1, le=1000)
    """Counts from 1."""
    pod_name: str | None = Field(default=None, max_length=63)
    """Its pod."""
    node: str | None = Field(default=None, max_length=253)
    """The pod's node."""
    fencing_token: Int64 | None = Field(default=None, ge=0, lt=TOKEN_LIMIT)
    """Its token."""
    start_time: Time | None = None
    """When it was assigned."""
    end_time: Time | None = None
    """When it was closed."""
    loss: Loss | None = None
    """Which budget it counts against; unset: it is going on, or gave the answer."""
    reason: ReasonWord | None = None
    """Why it was lost."""
    message: str | None = Field(default=None, max_length=256)
    """The same in a sentence."""


class Result(ApiModel):
    """The end of the run, for a quick look."""

    summary: str | None = Field(default=None, max_length=1024)
    """The beginning of the last message."""
    message_id: str | None = Field(default=None, max_length=128)
    """LangChain's id of the last message."""


def _true(type_: str) -> str:
    return f"self.conditions.exists(c, c.type == '{type_}' && c.status == 'True')"


def _ends_whole(status: ObjectStatus) -> bool:
    succeeded = status.condition("Succeeded")
    return status.is_true("Finished") and succeeded is not None and succeeded.status != "Unknown"


class RunObjectStatus(ObjectStatus):
    """How far the run is and how it ended; written by the operator alone. `completionTime` marks the end."""

    rules = (
        *ObjectStatus.rules,
        never_removed("ownership", FENCE_ADVICE),
        Rule(
            "has(self.completionTime) || !has(self.conditions)"
            " || !self.conditions.exists(c, c.type in ['Finished', 'Succeeded'] && c.status == 'True')",
            "Finished=True and Succeeded=True need completionTime: write when the run ended with them",
            holds=lambda s: (
                s.completion_time is not None or not (s.is_true("Finished") or s.is_true("Succeeded"))
            ),
            field="conditions",
        ),
        Rule(
            f"!has(self.completionTime) || (has(self.conditions) && {_true('Finished')}"
            " && self.conditions.exists(c, c.type == 'Succeeded' && c.status != 'Unknown'))",
            "completionTime needs Finished=True, and that needs Succeeded True or False: set all three in one"
            " write and keep them, Finished is final",
            holds=lambda s: s.completion_time is None or _ends_whole(s),
            field="conditions",
        ),
        Rule(
            f"!has(self.completionTime) || !has(self.conditions) || !{_true('Succeeded')}"
            " || (has(self.delivery) && has(self.delivery.receiptID))",
            "Succeeded=True needs delivery.receiptID: write the receipt's id with it",
            holds=lambda s: (
                not s.is_true("Succeeded") or (s.delivery is not None and s.delivery.receipt_id is not None)
            ),
            field="conditions",
        ),
        *same_once_set("completionTime"),
        Rule(
            "!has(oldSelf.completionTime) || !has(oldSelf.conditions)"
            " || oldSelf.conditions.all(o, o.type != 'Succeeded' || (has(self.conditions)"
            " && self.conditions.exists(n, n.type == 'Succeeded' && n.status == o.status"
            " && n.reason == o.reason)))",
            "the outcome is frozen once the run ended: keep status and reason of Succeeded",
            field="conditions",
        ),
        *same_once_set("outcome"),
        never_removed("delivery", "delivery is kept once it is set: write it with every status"),
    )

    phase: Phase | None = None
    """One word for people; programs read the conditions."""
    agent: RunAgent | None = None
    """The Agent as it was when the run was admitted."""
    start_time: Time | None = None
    """When the first attempt was assigned."""
    completion_time: Time | None = None
    """When the run ended; set once."""
    duration: str | None = Field(default=None, max_length=16)
    """From start to end, as `2m4s`."""
    outcome: Outcome | None = None
    """How the run ended."""
    attempt: Int32 | None = Field(default=None, ge=0, le=1000)
    """The newest attempt, from 1."""
    disruptions: Int32 | None = Field(default=None, ge=0, le=1000)
    """Attempts that the platform took away."""
    next_attempt_time: Time | None = None
    """When the next attempt begins."""
    ownership: Ownership | None = None
    """Who may write."""
    pod: RunPod | None = None
    """The pod of the newest attempt."""
    checkpoint: CheckpointStatus | None = None
    """The newest checkpoint of the run."""
    queue_position: Int32 | None = Field(default=None, ge=0)
    """Runs of the Thread that come first; 0: next."""
    delivery: DeliveryStatus | None = None
    """The receipt."""
    usage: Usage | None = None
    """What the run consumed."""
    model: str | None = Field(default=None, max_length=128)
    """The model that answered last."""
    stream: StreamStatus | None = None
    """The live stream."""
    attempts: Annotated[tuple[AttemptStatus, ...], Field(max_length=10), Unique("attempt")] = ()
    """The last 10 attempts."""
    result: Result | None = None
    """The end of the run, for a quick look."""
    spec_hash: str | None = Field(default=None, max_length=64)
    """Of the spec that was admitted."""
