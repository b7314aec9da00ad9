"""What one operator process remembers of what it saw, and since when: never needed for correctness.

A restart forgets all of it, and then every wait merely starts again (see `lifecycle.world`).
"""

from collections.abc import Callable, Hashable

from treadle_operator.lifecycle.world import Problem


class Memory:
    """Facts of one Run, Thread or Agent by its uid. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._facts: dict[str, dict[str, tuple[object, float]]] = {}
        self._refused: dict[str, Problem] = {}

    def seen_for(self, uid: str, slot: str, value: Hashable = True) -> float:
        """Seconds since `slot` first had `value`, without another value in between."""
        now = self._clock()
        facts = self._facts.setdefault(uid, {})
        known = facts.get(slot)
        if known is None or known[0] != value:
            facts[slot] = (value, now)
            return 0.0
        return now - known[1]

    def unsee(self, uid: str, slot: str) -> None:
        self._facts.get(uid, {}).pop(slot, None)

    def refuse(self, uid: str, problem: Problem) -> None:
        """Keeps what the store or the API server answered to the last action, for the next pass."""
        self._refused[uid] = problem

    def accept(self, uid: str) -> None:
        self._refused.pop(uid, None)

    def refused(self, uid: str) -> Problem | None:
        return self._refused.get(uid)

    def forget(self, uid: str) -> None:
        self._facts.pop(uid, None)
        self._refused.pop(uid, None)

    def __len__(self) -> int:
        return len(self._facts)
