"""Named points at which a test stops the agent: "killed between any two steps" is forced, not hoped for.

`TREADLE_FAILPOINTS=after_claim=kill,before_step@3=stop` arms them: the third time `before_step` is reached,
the process stops itself. Without the variable every point is a no-op. The set is passed in, never global.
"""

import os
import signal
from collections import Counter
from dataclasses import dataclass
from typing import Final

ENV_FAILPOINTS: Final = "TREADLE_FAILPOINTS"

POINTS: Final = frozenset(
    {
        "after_assignment",
        "after_lease",
        "after_claim",
        "after_restore",
        "after_input",
        "before_model",
        "after_model",
        "before_tool",
        "after_tool",
        "before_writes",
        "after_writes",
        "before_checkpoint",
        "after_checkpoint",
        "before_flush",
        "after_graph",
        "after_finalizing",
        "before_settle",
        "after_settle",
    }
)
_SIGNALS: Final = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "term": signal.SIGTERM,
}
_KILL_KEEPER: Final = "kill_keeper"


@dataclass(frozen=True, slots=True)
class _Armed:
    deed: str
    at: int


class Failpoints:
    """Each armed point fires once, at the n-th time it is reached."""

    def __init__(self, armed: dict[str, _Armed] | None = None) -> None:
        self._armed = dict(armed or {})
        self._reached: Counter[str] = Counter()

    @classmethod
    def parse(cls, text: str) -> "Failpoints":
        """Read `POINT[@N]=DEED,...`. Raises ValueError for an unknown point or deed."""
        armed = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            place, _, deed = item.partition("=")
            point, _, number = place.partition("@")
            if point not in POINTS or deed not in (*_SIGNALS, _KILL_KEEPER) or not (number or "1").isdigit():
                raise ValueError(
                    f"{ENV_FAILPOINTS}: {item!r} is not POINT[@N]=DEED with POINT one of "
                    f"{', '.join(sorted(POINTS))} and DEED one of {', '.join((*_SIGNALS, _KILL_KEEPER))}"
                )
            armed[point] = _Armed(deed, int(number or "1"))
        return cls(armed)

    def reach(self, point: str) -> None:
        """Say that the program is at `point`."""
        armed = self._armed.get(point)
        if armed is None:
            return
        self._reached[point] += 1
        if self._reached[point] != armed.at:
            return
        if armed.deed == _KILL_KEEPER:
            os.kill(os.getppid(), signal.SIGKILL)
        else:
            os.kill(os.getpid(), _SIGNALS[armed.deed])
