"""Named points at which a test stops the program: "killed between any two steps" is forced, not hoped for.

`TREADLE_FAILPOINTS=after_assign=exit,before_status=raise` arms them; without it every point is a no-op. The
set is passed in, never global.
"""

import os
import signal
from collections.abc import Mapping
from typing import Final

POINTS: Final = frozenset(
    {
        "after_finalizer",
        "after_register",
        "after_admit",
        "after_assign",
        "after_grant",
        "after_lease",
        "after_pod",
        "after_settle",
        "before_status",
        "after_status",
        "after_cleanup",
        "after_end",
    }
)
_DEEDS: Final = frozenset({"exit", "raise"})


class FailpointReached(Exception):
    """Raised by a point armed with `raise`; the pass fails as from any other error."""


class Failpoints:
    """Each armed point fires once. `exit` is SIGKILL to oneself: no clean-up of any kind runs."""

    def __init__(self, armed: Mapping[str, str] | None = None) -> None:
        self._armed = dict(armed or {})

    @classmethod
    def parse(cls, text: str) -> "Failpoints":
        """Raises ValueError for an unknown point or deed."""
        armed = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            point, _, deed = item.partition("=")
            if point not in POINTS or deed not in _DEEDS:
                raise ValueError(
                    f"TREADLE_FAILPOINTS: {item!r} is not POINT=DEED with POINT one of "
                    f"{', '.join(sorted(POINTS))} and DEED exit or raise"
                )
            armed[point] = deed
        return cls(armed)

    def hit(self, point: str) -> None:
        deed = self._armed.pop(point, None)
        if deed == "exit":
            os.kill(os.getpid(), signal.SIGKILL)
        elif deed == "raise":
            raise FailpointReached(point)
