"""The curated part of a pod template. The whole of it would make a CRD of a megabyte.

A Run may shape where its pod runs; who it is (service account, secrets, environment) stands on the Agent
alone, or whoever may create Runs could use any Secret of the namespace.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StrictInt, StrictStr

from treadle_api.meta import KeyRef, LocalRef, ObjectName
from treadle_api.rules import ApiModel, Atomic, Extra, Int64, Rule, Unique, Worded

LabelValue = Annotated[
    str,
    Field(max_length=63),
    Worded(
        "([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?",
        "use letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
    ),
]
Labels = Annotated[dict[str, LabelValue], Field(max_length=32)]
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=32)]
_QUANTITY = r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?$"
Quantity = Annotated[
    StrictInt | Annotated[StrictStr, Field(max_length=32, pattern=_QUANTITY)],
    Extra((("x-kubernetes-int-or-string", True),)),
]
Quantities = Annotated[dict[str, Quantity], Field(max_length=16)]


class TolerationOperator(StrEnum):
    """How a toleration compares."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What an untolerated taint does."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(ApiModel):
    """A taint that the pod may be placed in spite of, as in a Pod."""

    key: str | None = Field(default=None, max_length=316)
    """Key of the taint; unset with operator Exists: every taint."""
    operator: TolerationOperator | None = None
    """Exists or Equal (the default)."""
    value: str | None = Field(default=None, max_length=63)
    """Value of the taint, for Equal."""
    effect: TaintEffect | None = None
    """Effect of the taint; unset: every effect."""
    toleration_seconds: Int64 | None = None
    """How long a NoExecute taint is tolerated; unset: for ever."""


class Resources(ApiModel):
    """Compute resources of the agent's container, as in a Pod."""

    limits: Quantities | None = None
    """The most it may use. A CPU limit below one core makes the start slow."""
    requests: Quantities | None = None
    """What the scheduler keeps for it."""


def _ours(key: str) -> bool:
    return key.startswith("treadle.dev/") or key == "app.kubernetes.io/managed-by"


class RunPodTemplate(ApiModel):
    """What a Run may say about its pods; wins over the Agent's podTemplate, key by key."""

    rules = (
        Rule(
            "!has(self.labels) || self.labels.all(k,"
            " !k.startsWith('treadle.dev/') && k != 'app.kubernetes.io/managed-by')",
            "labels treadle.dev/* and app.kubernetes.io/managed-by are set by the operator: remove them",
            holds=lambda pod: not any(_ours(key) for key in pod.labels or ()),
            field="labels",
            reason="FieldValueForbidden",
        ),
    )

    labels: Labels | None = None
    """Labels of the pod."""
    resources: Resources | None = None
    """Compute resources of the agent's container."""
    node_selector: Labels | None = None
    """Labels that the node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16), Atomic] | None = None
    """Taints that the pod may be placed in spite of; replaces the Agent's list."""


class EnvSource(ApiModel):
    """Where the value of an environment variable comes from."""

    rules = (
        Rule(
            "has(self.secretKeyRef) != has(self.configMapKeyRef)",
            "set exactly one of secretKeyRef and configMapKeyRef",
            holds=lambda s: (s.secret_key_ref is None) != (s.config_map_key_ref is None),
        ),
    )

    secret_key_ref: KeyRef | None = None
    """A key of a Secret."""
    config_map_key_ref: KeyRef | None = None
    """A key of a ConfigMap."""


_RESERVED = ("PATH", "PYTHONPATH", "LD_PRELOAD", "LD_LIBRARY_PATH")


class EnvVar(ApiModel):
    """An environment variable of the agent's container."""

    rules = (
        Rule(
            "has(self.value) != has(self.valueFrom)",
            "set exactly one of value and valueFrom",
            holds=lambda env: (env.value is None) != (env.value_from is None),
        ),
        Rule(
            "!self.name.startsWith('TREADLE_')"
            " && !(self.name in ['PATH', 'PYTHONPATH', 'LD_PRELOAD', 'LD_LIBRARY_PATH'])",
            "this variable belongs to the runtime: choose a name that does not start with TREADLE_ and is not"
            " PATH, PYTHONPATH, LD_PRELOAD or LD_LIBRARY_PATH",
            holds=lambda env: not env.name.startswith("TREADLE_") and env.name not in _RESERVED,
            field="name",
            reason="FieldValueForbidden",
        ),
    )

    name: Annotated[
        str,
        Field(min_length=1, max_length=128),
        Worded("[A-Za-z_][A-Za-z0-9_]*", "use letters, digits and '_', not beginning with a digit"),
    ]
    """Name of the variable."""
    value: str | None = Field(default=None, max_length=4096)
    """Its value."""
    value_from: EnvSource | None = None
    """Where its value comes from."""


class AgentPodTemplate(RunPodTemplate):
    """What an Agent may say about its pods."""

    annotations: Annotations | None = None
    """Annotations of the pod."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64), Unique("name")] | None = None
    """Environment of the agent's container."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of the pod; unset: treadle-agent. It must be allowed to get and update Leases."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pod."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pod."""
    image_pull_secrets: Annotated[tuple[LocalRef, ...], Field(max_length=8), Unique("name")] | None = None
    """Secrets with the credentials of the image's registry."""
