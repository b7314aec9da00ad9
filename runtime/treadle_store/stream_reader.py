"""What a gateway takes from the live wire."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from .stream_client import Client, WireFrame, decode, position, translated

READ_SECONDS: Final = 3.0
"""Longest wait for an answer, beyond the time that a read blocks on purpose."""

Position = tuple[int, int]
"""`(seq, n)` of an entry."""


@dataclass(frozen=True, slots=True)
class Window:
    """Where a position stands in what Redis kept.

    `anchor` is the newest entry at or before it: as long as that is there, nothing behind the position was
    trimmed, because streams are trimmed from their oldest end. `first` is the oldest entry. Both are None
    where Redis keeps nothing.
    """

    anchor: Position | None
    first: Position | None


@dataclass(frozen=True, slots=True)
class Page:
    """Entries in order: those of publishers as frames, and the last position of all."""

    frames: tuple[WireFrame, ...]
    last: Position


class Reader:
    """Reads streams, at most `max_connections` at a time. Every call raises WireUnavailable."""

    def __init__(self, redis: Client) -> None:
        self._redis = redis

    async def locate(self, stream: str, at: Position) -> Window:
        """The window of `stream`, seen from `at`."""
        async with translated("looking at the window", READ_SECONDS):
            before = await self._redis.call("XREVRANGE", stream, _id(at), "-", "COUNT", 1)
            if before:
                return Window(anchor=position(before[0][0]), first=None)
            first = await self._redis.call("XRANGE", stream, "-", "+", "COUNT", 1)
        return Window(anchor=None, first=position(first[0][0]) if first else None)

    async def wait(self, stream: str, after: Position, *, block_ms: int) -> bool:
        """Whether there is an entry behind `after`; waits up to `block_ms` for one."""
        async with translated("waiting", block_ms / 1000 + READ_SECONDS):
            answer = await self._redis.call(
                *("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", stream, _id(after))
            )
        return bool(answer)

    async def page(self, stream: str, start: Position, *, count: int, seen: bool = True) -> Page | None:
        """Up to `count` entries from `start` on; without `start` itself where that was `seen` before.

        None where the entry `start` is gone: others behind it may be gone too, see `locate`.
        """
        async with translated("reading", READ_SECONDS):
            rows: list[Any] = await self._redis.call("XRANGE", stream, _id(start), "+", "COUNT", count + 1)
        if not rows or position(rows[0][0]) != start:
            return None
        frames = (decode(entry_id, fields) for entry_id, fields in (rows[1:] if seen else rows))
        return Page(tuple(frame for frame in frames if frame), position(rows[-1][0]))


def _id(at: Position) -> str:
    return f"{at[0]}-{at[1]}"


@asynccontextmanager
async def open_reader(url: str, *, max_connections: int) -> AsyncIterator[Reader]:
    """A reader on the gateway's read-only user (credentials in `url`); connects on first use."""
    redis = Client(url, name="treadle-gateway", blocking=True, max_connections=max_connections)
    try:
        yield Reader(redis)
    finally:
        await redis.close()
