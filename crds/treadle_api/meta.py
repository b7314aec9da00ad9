"""What the three kinds share: metadata, conditions, references, and how a kind presents itself."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from treadle_api.rules import ApiModel, Int64, Rule, Time, Unique, Worded, never_removed

TOKEN_LIMIT: Final = 2**53
"""Fencing tokens stay below it, so that every JSON reader keeps them exact."""

DnsLabel = Annotated[
    str,
    Field(min_length=1, max_length=63),
    Worded(
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        "use lower-case letters, digits and '-', beginning and ending with a letter or digit",
    ),
]
ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Worded(
        "[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
        "use lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit",
    ),
]
DataKey = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Worded("[-._a-zA-Z0-9]+", "use letters, digits, '-', '_' and '.', as in the data of a ConfigMap"),
]
ReasonWord = Annotated[
    str,
    Field(min_length=1, max_length=63),
    Worded("[A-Z][A-Za-z0-9]*", "use one CamelCase word"),
]


class ObjectMeta(ApiModel):
    """The part of an object's metadata that Treadle reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()


class KeyRef(ApiModel):
    """One key of a Secret or ConfigMap in the same namespace."""

    name: ObjectName
    """Name of the Secret or ConfigMap."""
    key: DataKey
    """Key within its data."""


class LocalRef(ApiModel):
    """An object of the same namespace."""

    name: ObjectName
    """Name of the object."""


class AgentRef(ApiModel):
    """An Agent of the same namespace."""

    name: DnsLabel
    """Name of the Agent."""


class ConditionStatus(StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """One observation about the object; a condition is absent until it says something."""

    type: ReasonWord
    """What is observed."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: ReasonWord
    """Why, in one word; crds/README.md says for each word what to do next."""
    message: str = Field(min_length=1, max_length=512)
    """Why, in one sentence, with the next step where there is one."""
    last_transition_time: Time
    """When the status last changed."""
    observed_generation: Int64 | None = Field(default=None, ge=0)
    """The generation of the spec that this is about."""


Conditions = Annotated[tuple[Condition, ...], Field(max_length=16), Unique("type")]


class ObjectStatus(ApiModel):
    """What the statuses of all kinds have. Written by the operator alone."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.filter(c, c.type in ['Stalled', 'Reconciling'] && c.status == 'True').size() < 2",
            "Stalled and Reconciling cannot both be True: set one of them to False or leave it out",
            holds=lambda status: not (status.is_true("Stalled") and status.is_true("Reconciling")),
            field="conditions",
            inside=True,
        ),
    )

    observed_generation: Int64 = Field(default=-1, ge=-1)
    """The generation of the spec that this status is about; -1 until the operator has seen the object."""
    conditions: Conditions = ()
    """What is known about the object, one entry for each type."""

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type, or None while it says nothing."""
        return next((c for c in self.conditions if c.type == type_), None)

    def is_true(self, type_: str) -> bool:
        """Whether the condition of this type is there and True."""
        found = self.condition(type_)
        return found is not None and found.status is ConditionStatus.TRUE


FENCE_ADVICE: Final = (
    "the fencing token never falls and is never removed: keep the stored value or a higher one"
)


def token_never_falls(field: str) -> tuple[Rule, ...]:
    """The fencing token in `field` only rises, and is never removed."""
    return (
        Rule("self >= oldSelf", FENCE_ADVICE, field=field, inside=True),
        never_removed(field, FENCE_ADVICE),
    )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; wide ones are shown with `-o wide` only."""

    name: str
    type: str
    path: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind presents itself to the API server and to kubectl."""

    kind: str
    plural: str
    short_name: str
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
