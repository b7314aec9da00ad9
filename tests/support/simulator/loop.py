"""Virtual time: a heap of generators that yield how many seconds they sleep. Nothing else moves the clock."""

import heapq
from collections.abc import Callable, Generator
from random import Random

Process = Generator[float, None, None]


class Broken(AssertionError):
    """An invariant does not hold."""


class Unavailable(Exception):
    """A call that did not come back; it may or may not have taken effect."""


class Refused(Exception):
    """A call that was answered with no: conflict, not found, already there, stale token."""


def _always() -> bool:
    return True


class Loop:
    """Runs processes in the order of their virtual times; ties go by age, so a seed fixes everything."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.faults = True
        """While True calls may fail, watches may drop and pods may die."""
        self.trace: list[tuple[float, str, str]] = []
        self.steps = 0
        self._heap: list[tuple[float, int, Process, Callable[[], bool]]] = []
        self._count = 0

    def spawn(self, process: Process, *, after: float = 0.0, alive: Callable[[], bool] = _always) -> None:
        """Start `process`; it is dropped without a word as soon as `alive` says no (kill -9)."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + after, self._count, process, alive))

    def run(self, *, until: Callable[[], bool], check: Callable[[], None], limit: float) -> bool:
        """Step until `until` holds (True), nothing is left to do or `limit` is reached (False)."""
        while self._heap:
            at, _, process, alive = heapq.heappop(self._heap)
            if at > limit:
                return until()
            self.now = at
            if not alive():
                process.close()
                continue
            self.steps += 1
            pause = next(process, None)
            check()
            if pause is not None:
                self._count += 1
                heapq.heappush(self._heap, (self.now + pause, self._count, process, alive))
            if until():
                return True
        return until()

    def say(self, who: str, what: str) -> None:
        self.trace.append((self.now, who, what))

    def chance(self, probability: float) -> bool:
        """A fault happens with this probability, and never once faults have stopped."""
        return self.faults and self.random.random() < probability
