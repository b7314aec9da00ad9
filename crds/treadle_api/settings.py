"""What both a Run and an Agent's `runDefaults` may say about an execution.

No field here has a schema default: one would make "unset" invisible, and the Agent's default would never
apply. Admission resolves Run > Agent > built-in (`treadle_api.resolved` holds those) and checks again.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from treadle_api.rules import ApiModel, Int32, Rule, Unique, Worded

_RESERVED_CONFIGURABLE = ("thread_id", "run_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map")


class RunConfig(ApiModel):
    """LangGraph's configuration of the graph."""

    rules = (
        Rule(
            "!has(self.configurable) || self.configurable.all(k, !k.startsWith('__') && !(k in ["
            + ", ".join(f"'{key}'" for key in _RESERVED_CONFIGURABLE)
            + "]))",
            "keys that start with __ and thread_id, run_id, checkpoint_id, checkpoint_ns, checkpoint_map"
            " belong to the runtime: remove them",
            holds=lambda c: (
                not any(key.startswith("__") or key in _RESERVED_CONFIGURABLE for key in c.configurable or ())
            ),
            field="configurable",
            reason="FieldValueForbidden",
        ),
    )

    recursion_limit: Int32 | None = Field(default=None, ge=1, le=10_000)
    """Supersteps of the graph before the run ends with RecursionLimit (100)."""
    configurable: (
        Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] | None
    ) = None
    """Values that the graph reads from `configurable`. No secrets: whoever may read Runs reads them."""


class Retry(ApiModel):
    """What happens after an attempt was lost. Every new attempt continues from the last checkpoint."""

    rules = (
        Rule(
            "!has(self.backoffSeconds) || !has(self.backoffCapSeconds)"
            " || self.backoffSeconds <= self.backoffCapSeconds",
            "backoffSeconds must not be greater than backoffCapSeconds: lower it or raise the cap",
            holds=lambda r: (
                r.backoff_seconds is None
                or r.backoff_cap_seconds is None
                or r.backoff_seconds <= r.backoff_cap_seconds
            ),
            field="backoffSeconds",
        ),
    )

    backoff_limit: Int32 | None = Field(default=None, ge=0, le=20)
    """Attempts that may fail by themselves (crash, memory, late start, a model that does not answer) before
    the run is given up (3)."""
    max_disruptions: Int32 | None = Field(default=None, ge=0, le=100)
    """Attempts that the platform may take away (drain, eviction, node or store lost) at most (10)."""
    backoff_seconds: Int32 | None = Field(default=None, ge=1, le=3600)
    """Wait before the second attempt; doubles with each further one (5)."""
    backoff_cap_seconds: Int32 | None = Field(default=None, ge=1, le=86_400)
    """The longest wait between two attempts (300)."""


class Timeouts(ApiModel):
    """Deadlines of the run, in seconds."""

    start_seconds: Int32 | None = Field(default=None, ge=1, le=86_400)
    """From creating a pod until its agent has claimed the thread (600)."""
    active_seconds: Int32 | None = Field(default=None, ge=1, le=2_592_000)
    """From the first attempt's start until the run must have ended, over all attempts (86400)."""
    finalize_seconds: Int32 | None = Field(default=None, ge=1, le=3600)
    """From the graph's end until the receipt must be written (120)."""


class Requirement(StrEnum):
    """Which of the declared artifacts must have been presented."""

    NONE = "None"
    AT_LEAST_ONE = "AtLeastOne"
    ALL = "All"


class Delivery(ApiModel):
    """What the run must have delivered to count as a success."""

    rules = (
        Rule(
            "!has(self.requirement) || self.requirement != 'All'"
            " || (has(self.artifacts) && self.artifacts.size() > 0)",
            "requirement All needs at least one pattern in artifacts: add one or use AtLeastOne",
            holds=lambda d: d.requirement is not Requirement.ALL or bool(d.artifacts),
            field="artifacts",
        ),
    )

    requirement: Requirement | None = None
    """None: nothing needs to be presented. AtLeastOne: one file. All: one for each pattern (None)."""
    artifacts: (
        Annotated[
            tuple[
                Annotated[
                    str,
                    Field(min_length=1, max_length=256),
                    Worded(
                        "[^/].*",
                        "use a pattern relative to the workspace: remove the leading '/'",
                    ),
                ],
                ...,
            ],
            Field(max_length=20),
            Unique(),
        ]
        | None
    ) = None
    """Glob patterns of the files to be presented, relative to the workspace."""
