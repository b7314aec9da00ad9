"""The live end of one stream: what is new on the wire, and proof that nothing was skipped on the way."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from treadle_store.streams import Page, Position, Reader, WireUnavailable

from .cursor import Cursor

PAGE_ENTRIES: Final = 64
"""Entries read at once; more are left in Redis until the client has taken these."""


class Quiet(Enum):
    """Why there is no page."""

    NOTHING_NEW = "nothing new"
    EMPTY = "nothing at all: the stream was not begun, has expired, or Redis lost it"


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Entries between the cursor and `first`, the oldest one kept, may have been thrown away."""

    first: Position


class Tail:
    """Follows one stream. Every call raises WireUnavailable; the next one starts afresh."""

    def __init__(self, reader: Reader | None, stream: str) -> None:
        self._reader = reader
        self._stream = stream
        self._anchor: Position | None = None
        self._watched_empty = False

    async def next(self, at: Cursor, *, block_ms: int) -> Page | Trimmed | Quiet:
        """What follows `at`; waits up to `block_ms` for it. A page may begin with entries before `at`."""
        if self._reader is None:
            raise WireUnavailable("reading", "no stream is configured")
        try:
            if self._anchor is None:
                return await self._begin(self._reader, at, block_ms)
            if not await self._reader.wait(self._stream, self._anchor, block_ms=block_ms):
                return Quiet.NOTHING_NEW
            page = await self._reader.page(self._stream, self._anchor, count=PAGE_ENTRIES)
        except WireUnavailable:
            self.forget()
            raise
        if page is None:
            self._anchor = None
            return await self.next(at, block_ms=1)
        self._anchor = page.last
        return page

    def forget(self) -> None:
        """Trust nothing of what was seen so far."""
        self._anchor = None
        self._watched_empty = False

    async def _begin(self, reader: Reader, at: Cursor, block_ms: int) -> Page | Trimmed | Quiet:
        window = await reader.locate(self._stream, at.position)
        if window.anchor is not None:
            self._anchor = window.anchor
            page = await reader.page(self._stream, window.anchor, count=PAGE_ENTRIES)
        elif window.first is None:
            self._watched_empty = True
            if await reader.wait(self._stream, at.position, block_ms=block_ms):
                return await self._begin(reader, at, block_ms=1)
            return Quiet.EMPTY
        elif not self._follows(at, window.first):
            return Trimmed(window.first)
        else:
            page = await reader.page(self._stream, window.first, count=PAGE_ENTRIES, seen=False)
        self._anchor = page.last if page else None
        return page or Quiet.NOTHING_NEW

    def _follows(self, at: Cursor, first: Position) -> bool:
        """A stream that we saw empty is whole where it begins the way one does behind `at`."""
        begun = first in {(at.seq, 1), (at.seq + 1, 0), (at.seq + 1, 1)}
        return at.followed_by(first) or (self._watched_empty and begun)
