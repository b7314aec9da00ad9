"""One client's view of one run: durable events from the log, deltas from the wire, in one order.

Redis is believed for speed only. Its frames carry the seq of the log, so that a hole between two of them is
seen and filled from Postgres; whether the run has ended is asked of Postgres alone.

| the cursor is | the client gets |
|---|---|
| absent | every event of the run, then what is live |
| inside the window that Redis kept | what follows it, deltas included |
| older than the window | the events of the log, a `gap` that names the lost deltas, then what is live |
| ahead of the log, or of another one | `reset`, then as if absent |

Without Redis the same, from polling the log's head, with a `gap` for each outage.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from sse_starlette import ServerSentEvent

from treadle_api.names import stream_key
from treadle_store.errors import StoreUnavailable
from treadle_store.run_views import RunView
from treadle_store.streams import Page, Position, Reader, WireFrame, WireUnavailable

from . import frames
from .cursor import ALL_DELTAS, Cursor, before
from .records import Records
from .tail import Quiet, Tail, Trimmed

logger = logging.getLogger(__name__)

EVENTS_PAGE: Final = 50
"""Events read from the log at once."""
GAPS_LIMIT: Final = 8
"""Gaps in a row, with nothing else between them, after which the stream is given up."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between looks at the store: with the wire at hand, and without."""

    wired: float = 5.0
    polling: float = 1.0
    store_outage: float = 60.0
    """How long a stream outlives a store that does not answer; then the client reconnects."""


class _Interrupted(Exception):
    """What was going on is void; `frame` says why."""

    def __init__(self, frame: ServerSentEvent) -> None:
        super().__init__()
        self.frame = frame


class Follower:
    """Produces the frames of one connection. It holds one page at a time: a slow client slows the reading."""

    def __init__(self, records: Records, reader: Reader | None, run: RunView, pace: Pace) -> None:
        self._records = records
        self._reader = reader
        self._pace = pace
        self._enter(run)
        self._attempt = run.attempt
        self._token = 0
        self._resumed = False
        """Whether the client may have seen deltas, which then must not just stop."""
        self._open_gap = False
        """Whether the client knows that deltas are missing until further notice."""
        self._gaps = 0
        self._empty_looks = 0
        self._look_at = 0.0
        self._ended = False

    def _enter(self, run: RunView) -> None:
        self._run = run
        self._tail = Tail(self._reader, stream_key(run.namespace, run.thread_id, run.log))
        self._old_head = 0
        self.at = _origin(run)
        """What the client has received; heartbeats carry it."""

    async def follow(self, cursor: Cursor | None) -> AsyncIterator[ServerSentEvent]:
        """Frames after `cursor` until the receipt was told, or until the client had better reconnect."""
        valid = cursor and cursor.log == self._run.log and cursor.seq <= self._run.head_seq
        if cursor and valid:
            self.at = cursor
            self._resumed = True
        yield frames.metadata(self._run, self.at)
        if cursor and not valid:
            reason = "ahead_of_log" if cursor.log == self._run.log else "other_log"
            yield frames.reset(self.at, cursor, reason)
        trouble: float | None = None
        while not self._ended:
            try:
                async for frame in self._step():
                    yield frame
                trouble = None
            except _Interrupted as interruption:
                yield interruption.frame
            except StoreUnavailable:
                trouble = trouble or time.monotonic()
                if time.monotonic() - trouble > self._pace.store_outage:
                    logger.warning(
                        "stream given up: the store does not answer", extra={"run": self._run.run_id}
                    )
                    return
                await asyncio.sleep(self._pace.polling)

    async def _step(self) -> AsyncIterator[ServerSentEvent]:
        """One look at the wire and, when that has nothing or the time has come, one at the store."""
        wait = 0.0 if self._run.settled else self._look_at - time.monotonic()
        try:
            news = await self._tail.next(self.at, block_ms=max(1, int(wait * 1000)))
            match news:
                case Page():
                    async for frame in self._take_page(news):
                        yield frame
                case Trimmed():
                    async for frame in self._skip_to(news.first):
                        yield frame
        except WireUnavailable as error:
            async for frame in self._poll(error):
                yield frame
            return
        quiet = news if isinstance(news, Quiet) else None
        if quiet or time.monotonic() >= self._look_at:
            async for frame in self._look(quiet):
                yield frame

    async def _take_page(self, page: Page) -> AsyncIterator[ServerSentEvent]:
        self._open_gap = False
        self._empty_looks = 0
        for frame in page.frames:
            if (frame.seq, frame.n) > self.at.position:
                async for out in self._take(frame):
                    yield out

    async def _take(self, frame: WireFrame) -> AsyncIterator[ServerSentEvent]:
        async for out in self._replay_before((frame.seq, frame.n)):
            yield out
        if frame.token > self._token:
            self._token = frame.token
            for out in await self._refresh():
                yield out
        self.at = Cursor(self._run.log, frame.seq, frame.n)
        if frame.run_id != self._run.run_id:
            return
        if frame.n == 0 and frame.data is not None:
            yield self._sent(frames.agent_frame(frame.type, self.at, frame.data))
        elif frame.n == 0:
            for event in await self._records.events(self._run, after_seq=frame.seq - 1, limit=1):
                yield self._sent(frames.committed(event, self._run.log))
        elif frame.type == "end":
            self._look_at = 0.0
        elif frame.type == "gap":
            yield self._counted(frames.lost(self.at, frame.data or {}))
        else:
            self._resumed = True
            yield self._sent(frames.agent_frame(frame.type, self.at, frame.data or {}))

    async def _skip_to(self, first: Position) -> AsyncIterator[ServerSentEvent]:
        """From behind the window into it: events from the log, then the gap."""
        after = self.at
        async for frame in self._replay_before(first):
            yield frame
        self.at = before(self._run.log, first)
        if self._resumed or not self._run.settled:
            yield self._counted(frames.gap(self.at, after=after, before=first, reason="trimmed"))

    async def _replay_before(self, entry: Position) -> AsyncIterator[ServerSentEvent]:
        """Events of the log that come before `entry` and were not on the wire.

        Raises WireUnavailable where the log does not reach that far: no publisher of ours wrote the entry.
        """
        seq = entry[0] if entry[1] else entry[0] - 1
        if seq <= self.at.seq:
            return
        for frame in await self._refresh():
            yield frame
        if seq > self._run.head_seq:
            raise WireUnavailable("reading", "frames ahead of the log")
        async for frame in self._replay(seq):
            yield frame

    async def _poll(self, error: WireUnavailable) -> AsyncIterator[ServerSentEvent]:
        """Go on without the wire for one pause."""
        self._tail.forget()
        for frame in await self._refresh():
            yield frame
        async for frame in self._open(self._run.head_seq, "wire_unavailable"):
            logger.info("stream degraded to polling", extra={"run": self._run.run_id, "reason": error.reason})
            yield frame
        async for frame in self._finish(self._run.head_seq):
            yield frame
        if not self._ended:
            await asyncio.sleep(self._pace.polling)

    async def _look(self, quiet: Quiet | None) -> AsyncIterator[ServerSentEvent]:
        """Ask the store where the run stands.

        Without a settlement only events that were there at the look before are taken from the log: younger
        ones are about to come by the wire, in their place between the deltas.
        """
        for frame in await self._refresh():
            yield frame
        seq = self._run.head_seq if quiet and self._run.settled else min(self._old_head, self._run.head_seq)
        self._old_head = self._run.head_seq
        self._look_at = time.monotonic() + (self._pace.polling if quiet is Quiet.EMPTY else self._pace.wired)
        self._empty_looks += quiet is Quiet.EMPTY
        if self._empty_looks > 1 or (self._empty_looks and self._run.settled):
            async for frame in self._open(seq, "wire_empty"):
                yield frame
        if quiet:
            async for frame in self._finish(seq):
                yield frame

    async def _finish(self, seq: int) -> AsyncIterator[ServerSentEvent]:
        """Replay to `seq`; if that was all of a settled run, tell the outcome."""
        async for frame in self._replay(seq):
            yield frame
        if self._run.settled and self.at.seq >= self._run.head_seq:
            receipt = await self._records.receipt(self._run.run_id)
            if receipt is not None:
                self._ended = True
                yield frames.end(self.at, self._run, receipt)

    async def _replay(self, seq: int) -> AsyncIterator[ServerSentEvent]:
        """The run's events from the log, up to `seq`."""
        while self.at.seq < seq:
            page = await self._records.events(self._run, after_seq=self.at.seq, limit=EVENTS_PAGE)
            for event in page:
                if event.seq > seq:
                    break
                self.at = Cursor(self._run.log, event.seq, 0)
                yield self._sent(frames.committed(event, self._run.log))
            else:
                if len(page) == EVENTS_PAGE:
                    continue
            self.at = Cursor(self._run.log, max(seq, self.at.seq), 0)

    async def _refresh(self) -> list[ServerSentEvent]:
        """Read the run again; what there is to tell of another attempt."""
        run = await self._records.view(self._run.run_id)
        if run is None:
            self._ended = True
            raise _Interrupted(frames.failure(self.at, "RunGone", "the store no longer keeps this run"))
        if run.log != self._run.log or run.head_seq < self.at.seq:
            reason = "ahead_of_log" if run.log == self._run.log else "other_log"
            had = self.at
            self._enter(run)
            raise _Interrupted(frames.reset(self.at, had, reason))
        self._run = run
        if run.attempt == self._attempt:
            return []
        self._attempt = run.attempt
        return [frames.metadata(run, self.at)]

    async def _open(self, seq: int, reason: str) -> AsyncIterator[ServerSentEvent]:
        """Once until the next page: say that deltas behind `at` are missing.

        Only where there can have been any that this client would have wanted. `seq` is how far the log is
        about to be told.
        """
        nothing_since = self.at.seq >= seq and (self._run.settled or self.at.n == ALL_DELTAS)
        wanted = self._resumed or not self._run.settled
        if wanted and not nothing_since and not self._open_gap:
            self._open_gap = True
            yield self._counted(frames.gap(self.at, after=self.at, before=None, reason=reason))

    def _counted(self, gap: ServerSentEvent) -> ServerSentEvent:
        self._gaps += 1
        if self._gaps > GAPS_LIMIT:
            self._ended = True
            detail = "frames are lost faster than they are read: reconnect without Last-Event-ID"
            raise _Interrupted(frames.failure(self.at, "TooManyGaps", detail))
        return gap

    def _sent(self, frame: ServerSentEvent) -> ServerSentEvent:
        self._gaps = 0
        return frame


def _origin(run: RunView) -> Cursor:
    """Just before the run's first event: nothing before it belongs to the run."""
    first = run.first_seq if run.first_seq is not None else run.head_seq + 1
    return Cursor(run.log, first - 1, ALL_DELTAS)
