"""What one operator process remembers of what it saw, and since when: never needed for correctness.

A restart forgets all of it, and then every wait merely starts again (see `lifecycle.world`).
"""

from collections.abc import Callable
from typing import Final

from treadle_operator.lifecycle.world import Problem

REFUSED_SECONDS: Final = 20.0


class Memory:
    """Facts of one Run, Thread or Agent by its uid. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._facts: dict[str, dict[str, tuple[object, float]]] = {}
        self._refused: dict[str, tuple[Problem, float]] = {}
        self._attempts: dict[str, int] = {}

    def seen_for(self, uid: str, slot: str, value: object = True) -> float:
        """Seconds since `slot` first had `value`, without another value in between."""
        now = self._clock()
        facts = self._facts.setdefault(uid, {})
        known = facts.get(slot)
        if known is None or known[0] != value:
            facts[slot] = (value, now)
            return 0.0
        return now - known[1]

    def refuse(self, uid: str, problem: Problem) -> None:
        """Keeps what the store or the API server answered to the last action, for the next passes."""
        self._refused[uid] = (problem, self._clock())

    def accept(self, uid: str) -> None:
        self._refused.pop(uid, None)

    def refused(self, uid: str) -> Problem | None:
        """A refusal that is not final is forgotten after a while, so that the action is tried again."""
        found = self._refused.get(uid)
        if found is None or (not found[0].final and self._clock() - found[1] > REFUSED_SECONDS):
            return None
        return found[0]

    def assigned(self, uid: str, attempt: int) -> None:
        self._attempts[uid] = attempt

    def attempt(self, uid: str) -> int:
        """The newest attempt of a run that we know of, 0 for none."""
        return self._attempts.get(uid, 0)

    def forget(self, uid: str) -> None:
        self._attempts.pop(uid, None)
        self._facts.pop(uid, None)
        self._refused.pop(uid, None)

    def __len__(self) -> int:
        return len(self._facts)
