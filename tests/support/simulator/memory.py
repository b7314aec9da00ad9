"""What one operator process remembers, and loses when it is killed."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Memory:
    """What a process knows only as long as it lives: when it first saw something, by its monotonic clock."""

    first: dict[Any, float] = field(default_factory=dict)
    last: dict[Any, Any] = field(default_factory=dict)

    def since(self, key: Any, value: Any, now: float) -> float:
        """Seconds since `key` has had this value."""
        if key not in self.last or self.last[key] != value:
            self.last[key], self.first[key] = value, now
        return now - self.first[key]
