"""What the work queue holds: a key names one thing to look at, never what happened to it."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    AGENT = "agents"
    THREAD = "threads"
    RUN = "runs"
    ROW = "rows"
    """A row of the store whose Run object is not where it should be; `name` is the run's uid."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"
