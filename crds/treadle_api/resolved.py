"""A run with every default resolved (Run > Agent > built-in), stored with the run at admission.

The operator writes it once; the agent reads it from its assignment. Later edits of the Agent or of a
ConfigMap change nothing for a run that was admitted.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Resolved(BaseModel):
    """Ignores what it does not know: a newer operator may add fields that an older image never reads."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ResolvedModel(_Resolved):
    provider: str = "scripted"
    name: str = "scripted"
    base_url: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the chat model, parsed from the JSON strings of the Agent."""
    script: str | None = None
    """The text of the script (YAML or JSON) of provider `scripted`."""


class ResolvedWorkspace(_Resolved):
    max_bytes: int = 64 * 1024 * 1024
    max_file_bytes: int = 16 * 1024 * 1024
    max_files: int = 1000


class ResolvedLease(_Resolved):
    duration_seconds: int = 40
    renew_seconds: int = 10


class ResolvedRetry(_Resolved):
    backoff_limit: int = 3
    max_disruptions: int = 10
    backoff_seconds: int = 5
    backoff_cap_seconds: int = 300


class ResolvedTimeouts(_Resolved):
    start_seconds: int = 600
    active_seconds: int = 86_400
    finalize_seconds: int = 120


class ResolvedDelivery(_Resolved):
    requirement: str = "None"
    """None | AtLeastOne | All, as in the CRD."""
    artifacts: tuple[str, ...] = ()
    """Glob patterns, relative to the workspace."""


class ResolvedRun(_Resolved):
    graph: str = "treadle_runtime.graphs.lead:graph"
    """`module:attribute` of a compiled graph, a StateGraph, or a function of the build context."""
    instructions: str = ""
    model: ResolvedModel = ResolvedModel()
    tools: tuple[str, ...] = (
        "list_files",
        "read_file",
        "write_file",
        "edit_file",
        "write_todos",
        "present_files",
        "sum_table",
        "calculate",
    )
    workspace: ResolvedWorkspace = ResolvedWorkspace()
    lease: ResolvedLease = ResolvedLease()
    retry: ResolvedRetry = ResolvedRetry()
    timeouts: ResolvedTimeouts = ResolvedTimeouts()
    delivery: ResolvedDelivery = ResolvedDelivery()
    recursion_limit: int = 100
    configurable: dict[str, str] = Field(default_factory=dict)
