"""What a gateway takes from the live wire."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from .stream_client import Client, WireFrame, decode, position, translated

READ_SECONDS: Final = 3.0
"""Longest wait for an answer, beyond the time that a read blocks on purpose."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one read gave: its frames in order, and the position after which the next read goes on.

    `last` is ahead of the last frame where entries were passed over that no publisher of ours wrote.
    """

    frames: tuple[WireFrame, ...]
    last: tuple[int, int]


class Reader:
    """Reads streams, at most `max_connections` at a time. Every call raises WireUnavailable."""

    def __init__(self, redis: Client) -> None:
        self._redis = redis

    async def first(self, stream: str) -> tuple[int, int] | None:
        """Position of the oldest entry that Redis kept; None where it keeps nothing."""
        async with translated("looking at the window", READ_SECONDS):
            rows = await self._redis.call("XRANGE", stream, "-", "+", "COUNT", 1)
        return position(rows[0][0]) if rows else None

    async def read(self, stream: str, after: tuple[int, int], *, block_ms: int, count: int = 32) -> Page:
        """Up to `count` entries behind `after`; waits up to `block_ms` for the first one.

        An empty page means that there was none. Raises WireUnavailable.
        """
        async with translated("reading", block_ms / 1000 + READ_SECONDS):
            answer = await self._redis.call(
                *("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", stream, f"{after[0]}-{after[1]}")
            )
        rows = answer[0][1] if answer else []
        frames = tuple(frame for entry_id, fields in rows if (frame := decode(entry_id, fields)))
        return Page(frames, position(rows[-1][0]) if rows else after)


@asynccontextmanager
async def open_reader(url: str, *, max_connections: int) -> AsyncIterator[Reader]:
    """A reader on the gateway's read-only user (credentials in `url`); connects on first use."""
    redis = Client(url, name="treadle-gateway", blocking=True, max_connections=max_connections)
    try:
        yield Reader(redis)
    finally:
        await redis.close()
