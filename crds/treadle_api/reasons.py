"""Condition types and reasons: a closed list. One reason, one next action for the reader.

The CRDs only demand one CamelCase word, so that a newer operator may add to the list. `crds/README.md` is
generated from here.
"""

from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition is about."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "ConditionType":
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    RECONCILING = "Reconciling", "True while something is still to be done; every unfinished Run has it."
    STALLED = "Stalled", "True when nothing more will happen by itself: a Run that ended without success."
    READY = "Ready", "Agent, Thread: a Run could start now."
    BUSY = "Busy", "Thread: True while a Run of it may write."
    ACCEPTED = "Accepted", "Run: False when the spec, or what it refers to, cannot be used."
    ADMITTED = "Admitted", "Run: the store holds it, with its input and files."
    OWNED = "Owned", "Run: an attempt's pod has claimed the thread."
    EVENTS_COMPLETE = "EventsComplete", "Run: False when events of it could not be written to the log."
    DELIVERED = "Delivered", "Run: the receipt meets the delivery requirement; Unknown without a baseline."
    FINISHED = "Finished", "Run: the end, whatever it was; set once, never cleared."
    SUCCEEDED = "Succeeded", "Run: Unknown until Finished, then True or False for good."


class ReasonGroup(StrEnum):
    """Where in its life an object is when it gives the reason."""

    PROGRESS = "Progress"
    WAITING = "Waiting"
    SUCCESS = "Success"
    CANCEL = "Cancel"
    FAILURE = "Failure"
    LOSS = "Loss of an attempt"
    CONFIGURATION = "Agent and Thread"


_PROGRESS = ReasonGroup.PROGRESS
_WAITING = ReasonGroup.WAITING
_SUCCESS = ReasonGroup.SUCCESS
_CANCEL = ReasonGroup.CANCEL
_FAILURE = ReasonGroup.FAILURE
_LOSS = ReasonGroup.LOSS
_CONFIGURATION = ReasonGroup.CONFIGURATION

_NOTHING = "Nothing to do."


class Reason(StrEnum):
    """Why, in one word; `next_action` is what the reader does about it, in one sentence."""

    group: ReasonGroup
    meaning: str
    next_action: str

    def __new__(cls, value: str, group: ReasonGroup, meaning: str, next_action: str) -> "Reason":
        member = str.__new__(cls, value)
        member._value_ = value
        member.group = group
        member.meaning = meaning
        member.next_action = next_action
        return member

    @property
    def advice(self) -> str:
        """What it means and what the reader does about it, as one message."""
        return f"{self.meaning} {self.next_action}"

    # Progress
    ADMITTED = "Admitted", _PROGRESS, "The store holds the run, with its input and files.", _NOTHING
    STARTING = (
        "Starting",
        _PROGRESS,
        "The attempt's pod exists and has not claimed the thread.",
        _NOTHING,
    )
    TAKEN = "Taken", _PROGRESS, "The attempt's pod has claimed the thread.", _NOTHING
    RUNNING = "Running", _PROGRESS, "The graph is being executed.", _NOTHING
    FINALIZING = "Finalizing", _PROGRESS, "The graph ended; the settlement is being written.", _NOTHING

    # Waiting: each has a deadline behind it
    THREAD_BUSY = (
        "ThreadBusy",
        _WAITING,
        "Another run of the thread comes first.",
        "Wait for it, or delete it: the Thread's ACTIVE column names it.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        _WAITING,
        "No node takes the pod.",
        "Add capacity, or correct resources, nodeSelector and tolerations in a new Run.",
    )
    IMAGE_PULL_BACK_OFF = (
        "ImagePullBackOff",
        _WAITING,
        "The agent's image cannot be pulled; it is tried again.",
        "Correct the Agent's image or imagePullSecrets before imagePullGraceSeconds are over.",
    )
    CONTAINER_CONFIG_ERROR = (
        "ContainerConfigError",
        _WAITING,
        "The kubelet cannot start the container: a Secret or ConfigMap, or a key of it, is missing.",
        "Create what the message names; the pod starts by itself.",
    )
    POD_CREATION_BACKOFF = (
        "PodCreationBackoff",
        _WAITING,
        "The API server refuses the pod for now; it is tried again.",
        "Do what the message says: quota, admission policy or ServiceAccount of the namespace.",
    )
    STORE_UNAVAILABLE = (
        "StoreUnavailable",
        _WAITING,
        "The store does not answer; nothing is lost and it is tried again.",
        "Bring Postgres back, or correct the store's Secret.",
    )
    SCHEMA_MISMATCH = (
        "SchemaMismatch",
        _WAITING,
        "The store's schema is older or newer than this program.",
        "Run treadle-migrate up, or upgrade the program.",
    )
    STORE_FAILED_OVER = (
        "StoreFailedOver",
        _WAITING,
        "The store was failed over or restored; nobody writes until its threads are fenced.",
        "See that no old primary writes, then run treadle-migrate fence-all (restored: --after-restore).",
    )
    LEASE_NOT_EXPIRED = (
        "LeaseNotExpired",
        _WAITING,
        "The pod is gone without proof of its death; its Lease is waited out.",
        "Wait for lease.durationSeconds.",
    )
    RETRY_BACKOFF = (
        "RetryBackoff",
        _WAITING,
        "The last attempt was lost; the next one begins at status.nextAttemptTime.",
        "Wait, and read status.attempts for the cause.",
    )
    RECEIPT_PENDING = (
        "ReceiptPending",
        _WAITING,
        "The pod ended; its receipt is being looked for.",
        "Wait for finalizeSeconds.",
    )
    INPUT_PENDING = (
        "InputPending",
        _WAITING,
        "A ConfigMap of the input or of files is missing.",
        "Create the ConfigMap and key that the message names; the Run goes on by itself.",
    )
    AGENT_PENDING = (
        "AgentPending",
        _WAITING,
        "The Agent does not exist or is not ready.",
        "Create or correct the Agent that the message names; the Run goes on by itself.",
    )
    THREAD_PENDING = (
        "ThreadPending",
        _WAITING,
        "The Thread does not exist and the Run has no threadTemplate.",
        "Create the Thread that the message names; the Run goes on by itself.",
    )

    # Success
    DELIVERED = "Delivered", _SUCCESS, "The receipt meets the delivery requirement.", _NOTHING
    NOTHING_TO_DELIVER = (
        "NothingToDeliver",
        _SUCCESS,
        "The run ended well; no file was required or presented.",
        _NOTHING,
    )

    # Cancel
    CANCELLED = "Cancelled", _CANCEL, "The run was cancelled and settled.", "Create another Run to try again."
    DELETED = (
        "Deleted",
        _CANCEL,
        "The Run was deleted while it was unfinished.",
        "Create another Run to try again.",
    )

    # Failure
    AGENT_ERROR = (
        "AgentError",
        _FAILURE,
        "The graph raised an error.",
        "Read the message and `kubectl treadle logs`, correct the graph, create another Run.",
    )
    MODEL_REJECTED = (
        "ModelRejected",
        _FAILURE,
        "The model's provider refuses the request: key, model name or parameters.",
        "Correct the Agent's model or its Secret, create another Run.",
    )
    MODEL_UNAVAILABLE = (
        "ModelUnavailable",
        _FAILURE,
        "The model's provider failed or limited the rate, through every retry of client and Run.",
        "Create another Run when the provider answers again.",
    )
    RECURSION_LIMIT = (
        "RecursionLimit",
        _FAILURE,
        "The graph took config.recursionLimit steps without ending.",
        "Raise config.recursionLimit in a new Run, or correct the graph's loop.",
    )
    GRAPH_NOT_LOADED = (
        "GraphNotLoaded",
        _FAILURE,
        "The Agent's graph cannot be imported in its image.",
        "Correct the Agent's graph or image, create another Run.",
    )
    CONFIGURATION_INVALID = (
        "ConfigurationInvalid",
        _FAILURE,
        "Run and Agent together give settings that cannot work.",
        "Correct the field that the message names, create another Run.",
    )
    WORKSPACE_LIMIT_EXCEEDED = (
        "WorkspaceLimitExceeded",
        _FAILURE,
        "The files of the thread are over the Agent's workspace limits.",
        "Raise the Agent's workspace limits, or have the agent write less; create another Run.",
    )
    INPUT_UNAVAILABLE = (
        "InputUnavailable",
        _FAILURE,
        "The input or a file did not appear in time or cannot be read.",
        "Correct the ConfigMap that the message names, create another Run.",
    )
    INPUT_TOO_LARGE = (
        "InputTooLarge",
        _FAILURE,
        "Input or files are larger than the store takes.",
        "Make the part that the message names smaller, create another Run.",
    )
    OUT_OF_MEMORY = (
        "OutOfMemory",
        _FAILURE,
        "The agent's container was killed for its memory.",
        "Raise the memory limit in podTemplate.resources, create another Run.",
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        _FAILURE,
        "The agent's image could not be pulled within imagePullGraceSeconds.",
        "Correct the Agent's image or imagePullSecrets, create another Run.",
    )
    INVALID_POD = (
        "InvalidPod",
        _FAILURE,
        "The API server refuses the pod for good.",
        "Correct what the message names in podTemplate, create another Run.",
    )
    START_DEADLINE_EXCEEDED = (
        "StartDeadlineExceeded",
        _FAILURE,
        "The pod did not claim the thread within timeouts.startSeconds.",
        "Read status.attempts for what it waited for, remove that, create another Run.",
    )
    ACTIVE_DEADLINE_EXCEEDED = (
        "ActiveDeadlineExceeded",
        _FAILURE,
        "The run took longer than timeouts.activeSeconds.",
        "Raise timeouts.activeSeconds in a new Run of the Thread: it continues from the state reached.",
    )
    FINALIZE_DEADLINE_EXCEEDED = (
        "FinalizeDeadlineExceeded",
        _FAILURE,
        "The receipt was not written within timeouts.finalizeSeconds after the graph's end.",
        "See that store and node keep up, or raise timeouts.finalizeSeconds; create another Run.",
    )
    BACKOFF_LIMIT_EXCEEDED = (
        "BackoffLimitExceeded",
        _FAILURE,
        "More attempts failed by themselves than retry.backoffLimit allows.",
        "Read status.attempts for the cause, remove it, create another Run.",
    )
    DISRUPTION_LIMIT_EXCEEDED = (
        "DisruptionLimitExceeded",
        _FAILURE,
        "The platform took away more attempts than retry.maxDisruptions allows.",
        "Give the pods steadier nodes, create another Run.",
    )
    RECEIPT_MISSING = (
        "ReceiptMissing",
        _FAILURE,
        "The store says that the run ended, but holds no receipt.",
        "Restore the store from a backup that has it; report this, it should not happen.",
    )
    RECEIPT_UNWRITABLE = (
        "ReceiptUnwritable",
        _FAILURE,
        "The work was done, but its receipt could not be written.",
        "Read the message for the store's answer, remove the cause, create another Run.",
    )
    COVERAGE_FAILED = (
        "CoverageFailed",
        _FAILURE,
        "What was presented does not meet delivery.requirement.",
        "Compare delivery.artifacts with status.delivery, correct the Agent or the patterns, try again.",
    )
    NOT_DELIVERED = (
        "NotDelivered",
        _FAILURE,
        "The run did not end as a success, so nothing counts as delivered.",
        "Read the reason of Succeeded.",
    )
    CHECKPOINT_INCOMPATIBLE = (
        "CheckpointIncompatible",
        _FAILURE,
        "The thread's checkpoint cannot be read by this image or graph.",
        "Go back to the image that wrote it, or start another Thread.",
    )
    CHECKPOINT_MISSING = (
        "CheckpointMissing",
        _FAILURE,
        "The checkpoint from which the run must continue is not in the store.",
        "Restore the store, or start another Thread.",
    )
    AGENT_NOT_FOUND = (
        "AgentNotFound",
        _FAILURE,
        "The Agent did not appear in time.",
        "Create the Agent that the message names, then another Run.",
    )
    THREAD_NOT_FOUND = (
        "ThreadNotFound",
        _FAILURE,
        "The Thread did not appear in time and the Run has no threadTemplate.",
        "Create the Thread or set threadTemplate, in another Run.",
    )
    THREAD_MISMATCH = (
        "ThreadMismatch",
        _FAILURE,
        "The Thread belongs to another Agent than threadTemplate names.",
        "Name the Thread's own Agent, or another Thread, in another Run.",
    )
    THREAD_DELETING = (
        "ThreadDeleting",
        _FAILURE,
        "The Thread is being deleted.",
        "Create the Thread again when it is gone, then another Run.",
    )
    QUEUE_FULL = (
        "QueueFull",
        _FAILURE,
        "As many runs wait as the Thread's maxQueuedRuns allows.",
        "Raise maxQueuedRuns, or create another Run when fewer wait.",
    )

    # Loss of an attempt
    AGENT_CRASHED = (
        "AgentCrashed",
        _LOSS,
        "The agent's container ended without an answer.",
        "Wait for the next attempt; read the pod's log if it comes again.",
    )
    LEASE_EXPIRED = (
        "LeaseExpired",
        _LOSS,
        "The pod did not renew its Lease in time.",
        "Wait for the takeover; look at the pod's node if it comes again.",
    )
    POD_LOST = "PodLost", _LOSS, "The pod is gone.", "Wait for the next attempt."
    EVICTED = (
        "Evicted",
        _LOSS,
        "The kubelet or an eviction took the pod away.",
        "Wait for the next attempt; raise requests if memory or disk was short.",
    )
    PREEMPTED = (
        "Preempted",
        _LOSS,
        "A pod of higher priority took the place.",
        "Wait for the next attempt, or give the Agent a higher priorityClassName.",
    )
    DRAINED = (
        "Drained",
        _LOSS,
        "The node was drained; the agent stopped at a boundary.",
        "Wait for the next attempt.",
    )
    SELF_FENCED = (
        "SelfFenced",
        _LOSS,
        "The keeper ended the agent: it had lost the Lease or the agent had fallen silent.",
        "Wait for the next attempt; look at the pod's log if it comes again.",
    )

    # Agent, Thread and side conditions
    READY = "Ready", _CONFIGURATION, "A Run could start now.", _NOTHING
    SECRET_NOT_FOUND = (
        "SecretNotFound",
        _CONFIGURATION,
        "A Secret that the Agent needs is missing.",
        "Create the Secret and key that the message names.",
    )
    CONFIG_MAP_NOT_FOUND = (
        "ConfigMapNotFound",
        _CONFIGURATION,
        "A ConfigMap that the Agent needs is missing.",
        "Create the ConfigMap and key that the message names.",
    )
    THREAD_ID_CONFLICT = (
        "ThreadIDConflict",
        _CONFIGURATION,
        "Another Thread of the namespace has the same threadID.",
        "Delete one of the two, or create this one with another threadID.",
    )
    EVENTS_MISSING = (
        "EventsMissing",
        _CONFIGURATION,
        "Events of the run could not be written to the log; state and receipt are whole.",
        "Nothing can be done for this run; see that the store keeps up.",
    )
