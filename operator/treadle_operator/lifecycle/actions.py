"""What the operator can do about a Run or a Thread: a closed set, each member one idempotent call.

The shell carries a decision's actions out in order and stops at the first that does not succeed; the next
pass observes again. A refused compare-and-set is not an error: somebody else was first.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from treadle_api.records import FencingToken, LossClass, RunStatus, ThreadID
from treadle_operator.lifecycle.world import Prepared, ThreadObject

Status = dict[str, Any]
"""A complete status in the API's spelling; it replaces what was there."""


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Before anything exists that would have to be cleaned up."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Nothing is left to settle. For a Run that ends, before it shows so: it then leaves the watch, and
    nobody would look again at one whose operator died in between."""


@dataclass(frozen=True, slots=True)
class CreateThread:
    """Create the Thread `name` from the Run's template; AlreadyExists is success."""

    name: str
    agent: str


@dataclass(frozen=True, slots=True)
class RegisterThread:
    """`register_thread` for a Thread object; creates or adopts the row."""

    thread: ThreadObject


@dataclass(frozen=True, slots=True)
class RetireThread:
    """`retire_thread`: ends what still runs on it, erases its content, keeps a tombstone with its token."""

    thread_key: str


@dataclass(frozen=True, slots=True)
class Admit:
    """`register_thread` (idempotent), then `admit_run` with the Run's uid. `queue_full` and a rejection by
    the store come back as `RunWorld.refused` of the pass that follows."""

    thread: ThreadObject
    prepared: Prepared
    object_created: datetime


@dataclass(frozen=True, slots=True)
class Assign:
    """`assign_run`: raises the token, so every older writer is dead from here on; then grants the stream.

    With the attempt and pod that are current and unclaimed it gives the same assignment again. Its answer
    (pod key) is what a CreatePod later in the same decision needs. None from the store: observe again.
    """

    attempt: int
    expected_token: FencingToken
    pod: str
    loss: LossClass | None = None
    """Class of the attempt that ends by this; None for the first attempt and for a repetition."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EnsureLease:
    """The run's Lease exists, names `pod`, and its holder is empty unless it already named that pod."""

    pod: str


@dataclass(frozen=True, slots=True)
class DeleteLease:
    """The run's Lease goes once the run has ended and its pods have; while it stands, its Run is looked at.
    NotFound and Conflict are success."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the attempt's pod with the key of the Assign before it; AlreadyExists: same owner uid, else
    refuse. Preceded by a live read of the Run and of the pods that earlier attempts may have left."""

    attempt: int
    retries_left: int
    """How many more attempts the budget grants should this one fail by itself."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete with the uid as precondition; NotFound and Conflict are success."""

    name: str
    uid: str
    grace: int | None = None
    """Seconds; None: the pod's own."""


@dataclass(frozen=True, slots=True)
class RequestCancel:
    """`request_cancel`: durable intent in the run's row; first action wins."""

    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class SettleOrphan:
    """`settle_orphan`: the one statement by which the operator ends a run (token, end event, receipt)."""

    outcome: RunStatus
    reason: str
    message: str
    expected_token: FencingToken


@dataclass(frozen=True, slots=True)
class RevokeStream:
    """Take the Redis user of one token away. Best effort: the fence does not depend on it."""

    thread_id: ThreadID
    token: FencingToken


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """A Kubernetes Event on the object. `type` is Normal or Warning."""

    type: str
    reason: str
    message: str


OrphanAction = RequestCancel | SettleOrphan | RevokeStream
"""What can be done for a run of the store without its object."""
RunAction = (
    AddFinalizer
    | RemoveFinalizer
    | CreateThread
    | Admit
    | Assign
    | EnsureLease
    | DeleteLease
    | CreatePod
    | DeletePod
    | OrphanAction
    | EmitEvent
)
ThreadAction = AddFinalizer | RemoveFinalizer | RegisterThread | RetireThread | EmitEvent
Action = RunAction | ThreadAction
A_co = TypeVar("A_co", bound=Action, covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[A_co]):
    """What one pass concluded."""

    actions: tuple[A_co, ...] = ()
    status: Status | None = None
    """The whole status to show, None: leave what is there. Written after the actions, with the object's
    resourceVersion, and only where it differs from what is there."""
    requeue_after: float | None = None
    """Seconds until the world may look different by the passing of time alone; None: wait to be woken."""


# Names for annotations; what is made is a plain Decision.
RunDecision = Decision[RunAction]
ThreadDecision = Decision[ThreadAction]
OrphanDecision = Decision[OrphanAction]
AgentDecision = Decision[EmitEvent]
