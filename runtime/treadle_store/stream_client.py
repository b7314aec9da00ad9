"""The Redis client behind the live wire: how it connects, what its failures become, how frames are spelled.

Redis is lossy by design (P4): whatever goes wrong with it becomes one exception, `WireUnavailable`, and
every caller goes on without it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

CONNECT_SECONDS: Final = 2.0
"""Longest wait for one TCP connection, handshake included."""
COMMAND_SECONDS: Final = 3.0
"""Longest wait for one answer that does not block on purpose."""
FRAME_BYTES_LIMIT: Final = 65_536
"""`data` of one frame, as JSON. A larger committed event travels as a
reference: readers take it from the log."""

Fields = Mapping[bytes, bytes]


class WireUnavailable(Exception):
    """Redis did not do what was asked, for whatever reason; nothing durable depends on it.

    `reason` is the class of the cause, for logs and for condition messages. It never holds a credential.
    """

    def __init__(self, doing: str, reason: str) -> None:
        super().__init__(f"live stream unavailable while {doing}: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class WireFrame:
    """A frame as it stands on the wire: `n` = 0 is a committed event, above 0 a delta that followed it.

    `data` is None where the frame only refers to the event `seq` of the log. Everything here was written
    by the agent of the thread and is to be read as such.
    """

    seq: int
    n: int
    run_id: str
    token: int
    type: str
    data: Mapping[str, Any] | None


class Client:
    """A Redis client without hidden retries; it connects on first use.

    Credentials in `url` win over the arguments. `blocking` clients wait in XREAD or SUBSCRIBE for longer
    than a command may take; their callers set the deadline.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        username: str | None = None,
        password: str | None = None,
        blocking: bool = False,
        max_connections: int = 8,
    ) -> None:
        self._redis: Redis = Redis.from_url(
            url,
            username=username,
            password=password,
            client_name=name,
            protocol=2,
            driver_info=None,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=None if blocking else COMMAND_SECONDS,
            max_connections=max_connections,
        )

    async def call(self, *command: bytes | str | int) -> Any:
        """The server's answer as redis-py parses it; raises what redis-py raises."""
        return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]

    def pubsub(self) -> PubSub:
        return self._redis.pubsub()

    async def close(self) -> None:
        await self._redis.aclose()


@asynccontextmanager
async def translated(doing: str, deadline: float | None = None) -> AsyncIterator[None]:
    """Turn failures of Redis in the block, and running out of `deadline` seconds, into WireUnavailable."""
    try:
        async with asyncio.timeout(deadline):
            yield
    except (RedisError, OSError, TimeoutError) as error:
        raise WireUnavailable(doing, type(error).__name__) from error


def encode(data: Mapping[str, Any]) -> bytes | None:
    """`data` as JSON, None where it is larger than a frame may be."""
    raw = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    return raw if len(raw) <= FRAME_BYTES_LIMIT else None


def position(entry_id: bytes) -> tuple[int, int]:
    """`b"57-3"` as `(57, 3)`."""
    seq, _, n = entry_id.partition(b"-")
    return int(seq), int(n)


def decode(entry_id: bytes, fields: Fields) -> WireFrame | None:
    """The frame of one entry; None for an entry that no publisher of ours wrote."""
    seq, n = position(entry_id)
    try:
        raw = fields[b"data"]
        data = json.loads(raw) if raw else None
        frame = WireFrame(
            seq=seq,
            n=n,
            run_id=fields[b"run"].decode(),
            token=int(fields[b"token"]),
            type=fields[b"type"].decode(),
            data=data,
        )
    except (KeyError, ValueError, RecursionError):
        return None
    return frame if data is None or isinstance(data, dict) else None
