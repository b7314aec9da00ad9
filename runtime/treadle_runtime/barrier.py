"""Await until everything acknowledged so far is durable and the token is still ours (R57, R58)."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

Participant = Callable[[], Awaitable[None]]

REQUIRED: Final = ("workspace", "journal", "ownership")


class BarrierIncomplete(RuntimeError):
    """A required participant is not mounted: an error at the start, never a barrier that holds nothing."""


class Barrier:
    """Participants by name. All of them settle before the first failure, in mounting order, is raised.

    Participants run at the same time, `last` ones after all others have settled.
    """

    def __init__(self, required: Collection[str] = REQUIRED) -> None:
        self._required = tuple(required)
        self._participants: dict[str, Participant] = {}
        self._last: dict[str, Participant] = {}

    def mount(self, name: str, participant: Participant, *, last: bool = False) -> None:
        if name in self._participants or name in self._last:
            raise ValueError(f"barrier participant {name!r} is mounted already")
        (self._last if last else self._participants)[name] = participant

    def check(self) -> None:
        """Raises BarrierIncomplete, naming what is missing."""
        mounted = (*self._participants, *self._last)
        if missing := [name for name in self._required if name not in mounted]:
            raise BarrierIncomplete(f"barrier without {', '.join(missing)}: mount it before the graph runs")

    async def __call__(self) -> tuple[str, ...]:
        """Hold until all is durable; the names of those who took part."""
        self.check()
        failures: list[BaseException] = []
        for group in (self._participants, self._last):
            results = await asyncio.gather(*(each() for each in group.values()), return_exceptions=True)
            failures += [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise failures[0]
        return (*self._participants, *self._last)
