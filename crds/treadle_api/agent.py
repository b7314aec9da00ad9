"""The Agent: what to run. Configuration only; it starts nothing by itself."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from treadle_api.contract import BLOB_BYTES_LIMIT
from treadle_api.meta import Column, KeyRef, Kind, LocalRef, ObjectMeta, ObjectStatus
from treadle_api.pod import AgentPodTemplate
from treadle_api.rules import ApiModel, Int32, Int64, Rule, Unique, Worded
from treadle_api.settings import Delivery, Retry, RunConfig, Timeouts

_DEFAULT_LEASE_SECONDS = 40


class ImagePullPolicy(StrEnum):
    """When the kubelet pulls the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class BuiltinTool(StrEnum):
    """Tools that the runtime brings along."""

    LIST_FILES = "list_files"
    READ_FILE = "read_file"
    WRITE_FILE = "write_file"
    EDIT_FILE = "edit_file"
    WRITE_TODOS = "write_todos"
    PRESENT_FILES = "present_files"
    SUM_TABLE = "sum_table"
    CALCULATE = "calculate"


class AgentModel(ApiModel):
    """The chat model."""

    rules = (
        Rule(
            "(self.provider == 'scripted') == has(self.scriptConfigMapKeyRef)",
            "provider scripted needs scriptConfigMapKeyRef, and no other provider takes one",
            holds=lambda m: (m.provider == "scripted") == (m.script_config_map_key_ref is not None),
            field="scriptConfigMapKeyRef",
        ),
        Rule(
            "self.provider == 'scripted' || has(self.name)",
            "set model.name: only provider scripted goes without",
            holds=lambda m: m.provider == "scripted" or m.name is not None,
            field="name",
            reason="FieldValueRequired",
        ),
    )

    provider: Annotated[
        str,
        Field(min_length=1, max_length=32),
        Worded(
            "[a-z0-9]([-_a-z0-9]*[a-z0-9])?",
            "use LangChain's name of the provider in lower case, as in openai or anthropic, or scripted",
        ),
    ]
    """LangChain's name of the provider, as `openai`; or `scripted`: deterministic, needs no key."""
    name: str | None = Field(default=None, min_length=1, max_length=128)
    """Name of the model at its provider."""
    base_url: (
        Annotated[
            str,
            Field(max_length=512),
            Worded("https?://.+", "use a URL that begins with http:// or https://"),
        ]
        | None
    ) = None
    """Where the provider's protocol is spoken, when not at the provider itself."""
    api_key_secret_key_ref: KeyRef | None = None
    """The Secret that holds the provider's key."""
    parameters: (
        Annotated[dict[str, Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=32)]
        | None
    ) = None
    """Further arguments of the model, each value as JSON: `temperature: "0.2"`."""
    script_config_map_key_ref: KeyRef | None = None
    """The ConfigMap that holds the script of provider `scripted`."""


class Instructions(ApiModel):
    """The system prompt."""

    rules = (
        Rule(
            "has(self.inline) != has(self.configMapKeyRef)",
            "set exactly one of inline and configMapKeyRef",
            holds=lambda i: (i.inline is None) != (i.config_map_key_ref is None),
        ),
    )

    inline: str | None = Field(default=None, min_length=1, max_length=65_536)
    """The text itself."""
    config_map_key_ref: KeyRef | None = None
    """The ConfigMap that holds the text."""


class Tools(ApiModel):
    """The tools that the model may call."""

    builtin: Annotated[tuple[BuiltinTool, ...], Field(max_length=32), Unique()] | None = None
    """Tools that the runtime brings along; unset: all of them."""


class Workspace(ApiModel):
    """Limits of the files that a thread keeps."""

    rules = (
        Rule(
            "!has(self.maxFileBytes) || !has(self.maxBytes) || self.maxFileBytes <= self.maxBytes",
            "maxFileBytes must not be greater than maxBytes: lower it or raise maxBytes",
            holds=lambda w: (
                w.max_file_bytes is None or w.max_bytes is None or w.max_file_bytes <= w.max_bytes
            ),
            field="maxFileBytes",
        ),
    )

    max_bytes: Int64 | None = Field(default=None, ge=1024, le=2**30)
    """All files together (64 MiB)."""
    max_file_bytes: Int64 | None = Field(default=None, ge=1024, le=BLOB_BYTES_LIMIT)
    """One file (16 MiB, or maxBytes where that is less)."""
    max_files: Int32 | None = Field(default=None, ge=1, le=10_000)
    """Number of files (1000)."""


class LeaseSettings(ApiModel):
    """How soon a silent pod is taken for lost."""

    rules = (
        Rule(
            "!has(self.renewSeconds) || 3 * self.renewSeconds <="
            f" (has(self.durationSeconds) ? self.durationSeconds : {_DEFAULT_LEASE_SECONDS})",
            "renewSeconds must be at most a third of durationSeconds (default 40): lower it, raise"
            " durationSeconds, or leave it out",
            holds=lambda s: (
                s.renew_seconds is None
                or 3 * s.renew_seconds <= (s.duration_seconds or _DEFAULT_LEASE_SECONDS)
            ),
            field="renewSeconds",
        ),
    )

    duration_seconds: Int32 | None = Field(default=None, ge=5, le=3600)
    """Silence after which the holder is taken for lost (40). Below 15 a slow API server looks like it."""
    renew_seconds: Int32 | None = Field(default=None, ge=1, le=600)
    """Time between two renewals (a quarter of durationSeconds)."""


class RunDefaults(ApiModel):
    """What holds for every Run of this Agent that does not say otherwise."""

    retry: Retry | None = None
    """What happens after an attempt was lost."""
    timeouts: Timeouts | None = None
    """Deadlines."""
    config: RunConfig | None = None
    """LangGraph's configuration of the graph."""
    delivery: Delivery | None = None
    """What must have been delivered."""


class AgentSpec(ApiModel):
    """What to run. A change holds for Runs that are admitted after it."""

    image: (
        Annotated[
            str,
            Field(min_length=1, max_length=512),
            Worded("[a-zA-Z0-9][-a-zA-Z0-9._/:@]*", "use an image reference, as in registry/name:tag"),
        ]
        | None
    ) = None
    """Image of the agent's container; unset: the runtime image of the installation."""
    image_pull_policy: ImagePullPolicy | None = None
    """When the kubelet pulls it; unset: Kubernetes decides by the tag."""
    graph: (
        Annotated[
            str,
            Field(max_length=253),
            Worded(
                "[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*",
                "use module:attribute, as in my_agents.sales:graph",
            ),
        ]
        | None
    ) = None
    """`module:attribute` of the graph within the image; unset: the built-in lead agent."""
    model: AgentModel
    """The chat model."""
    instructions: Instructions | None = None
    """The system prompt."""
    tools: Tools | None = None
    """The tools that the model may call."""
    workspace: Workspace | None = None
    """Limits of the files that a thread keeps."""
    lease: LeaseSettings | None = None
    """How soon a silent pod is taken for lost."""
    image_pull_grace_seconds: Int32 | None = Field(default=None, ge=0, le=86_400)
    """How long an image that cannot be pulled is waited for before the attempt fails (300)."""
    store_secret_ref: LocalRef | None = None
    """Secret with key `dsn`: the store, by a role of the agents; unset: treadle-store."""
    stream_secret_ref: LocalRef | None = None
    """Secret with key `url`: the live wire; unset: treadle-stream."""
    run_defaults: RunDefaults | None = None
    """What holds for every Run of this Agent that does not say otherwise."""
    pod_template: AgentPodTemplate | None = None
    """What the agent's pods look like."""


class AgentObjectStatus(ObjectStatus):
    """What the operator found: whether a Run of this Agent could start now."""


class Agent(ApiModel):
    """An Agent says what to run: the graph, its model, its tools and the shape of its pods."""

    kind: ClassVar[Kind] = Kind(
        "Agent",
        "agents",
        "agt",
        columns=(
            Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
            Column("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason'),
            Column("Model", "string", ".spec.model.name"),
            Column("Age", "date", ".metadata.creationTimestamp"),
            Column("Graph", "string", ".spec.graph", wide=True),
            Column("Image", "string", ".spec.image", wide=True),
        ),
    )
    rules = (
        Rule(
            "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
            "metadata.name: an Agent's name may have at most 63 characters and no dots (it becomes a label"
            " value): choose another name",
            holds=lambda a: len(a.metadata.name) <= 63 and "." not in a.metadata.name,
        ),
    )

    metadata: ObjectMeta = ObjectMeta()
    """Name, namespace, labels and so on."""
    spec: AgentSpec
    """What to run."""
    status: AgentObjectStatus = AgentObjectStatus()
    """What the operator found."""
