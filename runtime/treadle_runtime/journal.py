"""The agent's buffer in front of the event log: in order, bounded, never dropped silently."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from treadle_api.records import Event
from treadle_store.errors import StoreError, StoreRejected, StoreUnavailable

log = logging.getLogger(__name__)

Sink = Callable[[Sequence[Event]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """`window` in seconds is the longest an event waits for company."""

    threshold: int = 20
    batch: int = 100
    buffered: int = 1000
    window: float = 0.05


class Journal:
    """Use as `async with Journal(sink)`: a background task flushes by threshold and window.

    A batch that failed returns to the front and is sent again, in order. `complete` turns False when the
    log refused an event for good; the receipt says so.
    """

    def __init__(self, sink: Sink, limits: JournalLimits | None = None) -> None:
        self.complete = True
        self._sink = sink
        self._limits = limits or JournalLimits()
        self._buffer: deque[Event] = deque()
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._ended: StoreError | None = None
        self._flushing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Journal":
        self._task = asyncio.create_task(self._flush_by_itself(), name="journal")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    async def record(self, event: Event) -> None:
        """Take an event; waits while the buffer is full. Raises the error that ended the log for us."""
        while len(self._buffer) >= self._limits.buffered and self._ended is None:
            self._room.clear()
            await self._room.wait()
        if self._ended is not None:
            raise self._ended
        self._buffer.append(event)
        self._some.set()

    def take(self) -> list[Event]:
        """Everything buffered, up to a batch, for a step that takes it along; `give_back` if it fails."""
        if self._flushing.locked():
            return []  # those under way come first in the log
        return self._take()

    def give_back(self, events: Sequence[Event]) -> None:
        """Put events that were not written back to the front, in their order."""
        self._buffer.extendleft(reversed(events))
        self._some.set()

    async def flush(self) -> None:
        """Send all that is buffered now. Raises the store's error; nothing is lost by it."""
        async with self._flushing:
            left = len(self._buffer)
            while left > 0 and self._buffer:
                batch = self._take()
                left -= len(batch)
                await self._deliver(batch)

    def _take(self) -> list[Event]:
        count = min(len(self._buffer), self._limits.batch)
        taken = [self._buffer.popleft() for _ in range(count)]
        self._room.set()
        if not self._buffer:
            self._some.clear()
        return taken

    async def _deliver(self, batch: list[Event]) -> None:
        """Send `batch`; what was not sent when an error ends this returns to the front, in its order."""
        waiting, size = batch, len(batch)
        try:
            while waiting:
                part = waiting[:size]
                try:
                    await self._sink(part)
                except StoreRejected as error:
                    if len(part) > 1:
                        size = 1  # One event is refused, not its neighbours.
                        continue
                    self.complete = False
                    log.error(
                        "event refused by the log",
                        extra={"fields": {"type": part[0].type, "error": str(error)}},
                    )
                waiting = waiting[size:]
        except BaseException:
            self.give_back(waiting)
            raise

    async def _flush_by_itself(self) -> None:
        while True:
            await self._some.wait()
            if len(self._buffer) < self._limits.threshold:
                await asyncio.sleep(self._limits.window)
            try:
                await self.flush()
            except StoreUnavailable as error:
                log.warning("journal not flushed", extra={"fields": {"error": str(error)}})
                await asyncio.sleep(1.0)
            except StoreError as error:
                # Ownership is over: nobody may wait for room that will never come.
                self._ended = error
                self._room.set()
                return
