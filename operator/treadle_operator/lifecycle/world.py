"""What one reconcile pass has seen: plain frozen values, gathered by `observe`, judged by `decide_*`.

Two clocks appear, and never a third:
- `now` is the store's clock as far as the operator's own monotonic clock confirms it (never further ahead
  than the monotonic clock has moved since the first reading). A clock step therefore ends nothing (R97).
  Times stored after a step ahead lie in its future; deadlines then go by what was watched (`Seen`).
- every `..._for` is a number of seconds by the operator's monotonic clock since this process first saw the
  fact. It starts again at 0 when the operator restarts, so it can only make the operator wait longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from treadle_api.records import FencingToken, Json, RunRecord, ThreadID


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something cannot go on, with the sentence that a person reads.

    `final` problems do not get better by waiting; the others are looked at again.
    """

    reason: str
    message: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Terminated:
    """How the kubelet says a container ended."""

    exit_code: int
    reason: str = ""
    """The reason in the termination message's JSON line; empty where there was none."""
    message: str = ""
    oom: bool = False
    """Whether any container of the pod was ended for memory (an exit code alone does not say so)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a pod has not started: a kubelet's or scheduler's reason such as `ImagePullBackOff`."""

    reason: str
    message: str = ""
    seen_for: float = 0.0
    """Seconds since this operator first saw the pod wait for the same `starting.trouble`."""


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod that carries the run's label and is owned by this very Run (same uid)."""

    name: str
    uid: str
    attempt: int
    phase: str
    """`status.phase`, for messages; `alive` is what decides."""
    alive: bool
    """Whether a container of it may still execute: neither Succeeded nor Failed nor all terminated."""
    terminated: Terminated | None = None
    waiting: Waiting | None = None
    disruption: str = ""
    """Reason of a true DisruptionTarget condition, else empty."""
    deleting: bool = False
    node: str = ""
    image_id: str = ""
    dead_for: float = 0.0
    """Seconds since this operator first saw it not alive; 0 while alive."""


@dataclass(frozen=True, slots=True)
class LeaseView:
    """The run's Lease, or that there is none (`exists` False)."""

    exists: bool
    holder: str = ""
    """`<pod uid>/<nonce>`, or empty: never taken, or released."""
    pod: str = ""
    """The one pod that may take it, by its annotation."""
    silent_for: float = 0.0
    """Seconds since the operator last saw the Lease change (or vanish). Time in which the operator itself
    could not reach the API server is not counted (03-ownership, "Lease loss")."""


NO_LEASE = LeaseView(exists=False)


@dataclass(frozen=True, slots=True)
class RunObject:
    """The Run as the API server has it: what the rules need of it, and its status as it was last seen."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: datetime
    thread: str
    """`spec.threadRef.name`."""
    template_agent: str | None = None
    """`spec.threadTemplate.agentRef.name`: creates the Thread when it is missing."""
    start_seconds: int = 600
    """`spec.timeouts.startSeconds` or the built-in: how long a Run that cannot be admitted is kept."""
    finalizer: bool = False
    deleting: bool = False
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the status already says Finished: from then on it never changes its mind."""
        return any(
            c.get("type") == "Finished" and c.get("status") == "True"
            for c in self.status.get("conditions", ())
        )


@dataclass(frozen=True, slots=True)
class ThreadObject:
    """The Thread that a Run names."""

    namespace: str
    name: str
    uid: str
    agent: str
    thread_key: str
    """`spec.threadID`, or the uid where it is unset."""
    max_queued_runs: int = 100
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A Run with everything it refers to read and resolved: what admission stores (`resolve.prepare`)."""

    spec_hash: str
    config: Json
    """A `treadle_api.resolved.ResolvedRun`, as JSON."""
    input: Json
    files: tuple["PreparedFile", ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedFile:
    path: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What the run's rules need of the Agent as it is now; a pod is built from the whole object."""

    name: str
    generation: int
    image_pull_grace_seconds: int = 300


@dataclass(frozen=True, slots=True)
class RunWorld:
    """Everything `decide_run` may know. `observe` reads pods first and the record with its receipt last."""

    run: RunObject
    now: datetime
    seen_for: float = 0.0
    """Seconds since this operator first saw this Run (by uid)."""
    thread: ThreadObject | None = None
    agent: AgentFacts | None = None
    """None: no such Agent. It is the thread's agent, or the template's while there is no thread."""
    prepared: Prepared | Problem | None = None
    """Read only while the run is not admitted; None afterwards, and while thread or agent is missing."""
    pods: tuple[PodView, ...] = ()
    """Of all attempts, by attempt; a live read where the decision could be irreversible."""
    lease: LeaseView = NO_LEASE
    record: RunRecord | None = None
    """The run's row; None: not admitted (or the store did not answer, then `store_down_for` is set)."""
    record_for: float = 0.0
    """Seconds since this operator first saw the record in its present (status, attempt)."""
    store_down_for: float | None = None
    """Seconds since the store stopped answering; None: it answered in this pass."""
    store_failed_over: bool = False
    """It answers, but is another incarnation than the one that gave the tokens out."""
    deleting_for: float = 0.0
    """Seconds since this operator first saw the deletion."""
    refused: Problem | None = None
    """What the store or the API server answered to the last action for this run, if it was a refusal:
    `QueueFull`, `InputUnavailable` (too large) at admission; `InvalidPod`, `QuotaPending`,
    `PodCreationBackoff` at pod creation. The shell forgets it when a later attempt of the action succeeds."""


@dataclass(frozen=True, slots=True)
class ThreadWorld:
    """Everything `decide_thread` may know."""

    thread: ThreadObject
    generation: int
    now: datetime
    deletion_policy: str = "Retain"
    finalizer: bool = False
    status: Mapping[str, Any] = field(default_factory=dict)
    agent_exists: bool = True
    row: "ThreadFacts | None" = None
    """None: not registered in the store yet (or the store did not answer)."""
    store_down_for: float | None = None
    conflict: str = ""
    """Name of another Thread of this namespace that holds the same threadID, else empty."""
    unfinished_runs: int = 0
    """Run objects of this namespace that name this thread and are not finished."""
    deleting_for: float = 0.0


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """What the store knows of a thread, for its status."""

    thread_id: ThreadID
    fencing_token: FencingToken
    active: "ActiveRun | None" = None
    queued: int = 0
    head: "Head | None" = None
    last: "LastRun | None" = None


@dataclass(frozen=True, slots=True)
class ActiveRun:
    name: str
    uid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Head:
    checkpoint_id: str
    step: int


@dataclass(frozen=True, slots=True)
class LastRun:
    name: str
    outcome: str
    """The store's word (`success`, `error`, ...)."""
    time: datetime


@dataclass(frozen=True, slots=True)
class AgentWorld:
    """Everything `decide_agent` may know."""

    namespace: str
    name: str
    generation: int
    now: datetime
    graph: str
    """As the Agent resolves it: `module:attribute`."""
    problem: Problem | None = None
    """First thing `resolve.check_agent` found wrong in the spec or in what it refers to."""
    missing_secrets: tuple[str, ...] = ()
    """`name` or `name/key` of Secrets that do not exist (empty too where the operator may not look)."""
    store_down_for: float | None = None
    store_failed_over: bool = False
    schema_problem: str = ""
    """What `check_schema` said, with the command that mends it; empty: the schema's version is known."""
    status: Mapping[str, Any] = field(default_factory=dict)
