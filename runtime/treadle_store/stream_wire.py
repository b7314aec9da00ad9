"""The operator's side of the live wire: who may publish, the end frame of a recovered run, nudges."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from redis.asyncio.client import PubSub

from treadle_api.names import nudge_channel, stream_key, stream_password, stream_user, token_key
from treadle_api.records import FencingToken, RunUID, ThreadID

from .stream_acl import agent_rules, parse_user, reader_rules
from .stream_client import Client, WireUnavailable, encode, translated
from .stream_publisher import MAX_LENGTH, PUBLISH_SCRIPT, TTL_SECONDS, nudge_text

CALL_SECONDS: Final = 5.0
"""Longest that one call of the operator takes."""
NUDGE_BYTES_LIMIT: Final = 512
"""A longer message on the nudge channel is not ours."""

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_SILENCE_SECONDS = 15.0

_RAISE_SCRIPT = """
local current = redis.call('GET', KEYS[1])
if current and tonumber(current) > tonumber(ARGV[1]) then return {0, current} end
redis.call('SET', KEYS[1], ARGV[1])
return {1, current or ARGV[1]}
"""
_EXPIRE_SCRIPT = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
"""
_END_SCRIPT = """
local top = '0'
local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then top = string.match(info[i + 1], '^%d+') end
end
local id = top .. '-*'
if #info == 0 then id = '0-1' end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], id,
           'run', ARGV[3], 'token', ARGV[4], 'type', 'end', 'data', ARGV[5])
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""


@dataclass(frozen=True, slots=True)
class Nudge:
    """A wake-up: something about `run_id` changed in the store. `run_id` None: nudges may have been lost,
    and after a restart of Redis the users too, so look at everything and grant again."""

    namespace: str
    run_id: RunUID | None
    what: str


class Wire:
    """What the operator does on Redis. Every call is idempotent, ends within `CALL_SECONDS` and raises
    WireUnavailable."""

    def __init__(self, redis: Client, listener: Client) -> None:
        self._redis = redis
        self._listener = listener

    async def grant(
        self, namespace: str, thread_id: ThreadID, log: str, token: FencingToken, fence_key: bytes
    ) -> bool:
        """Make `token` the thread's only publisher: raise the token key, end the one before, admit this one.

        False where a newer token was granted already; then this one has no user. To be called at every
        assignment and again for every living assignment after Redis restarted (users and scripts are
        not persistent): what is already so stays untouched.
        """
        user = stream_user(thread_id, token)
        async with translated("granting", CALL_SECONDS):
            raised, before = await self._raise_token(namespace, thread_id, token)
            await self._redis.call("SCRIPT LOAD", PUBLISH_SCRIPT)
            if not raised:
                await self._redis.call("ACL DELUSER", user)
                return False
            if before != token:
                await self._redis.call("ACL DELUSER", stream_user(thread_id, before))
            rules = agent_rules(namespace, thread_id, log, stream_password(fence_key))
            await self._redis.call("ACL SETUSER", user, *rules)
            # Another operator may have granted a newer token since: whoever comes later takes back.
            raised, _ = await self._raise_token(namespace, thread_id, token)
            if not raised:
                await self._redis.call("ACL DELUSER", user)
        return bool(raised)

    async def revoke(self, namespace: str, thread_id: ThreadID, token: FencingToken) -> None:
        """End the publisher of `token`: its connections are closed. The token key is left to expire."""
        async with translated("revoking", CALL_SECONDS):
            await self._redis.call("ACL DELUSER", stream_user(thread_id, token))
            await self._redis.call(
                "EVAL", _EXPIRE_SCRIPT, 1, token_key(namespace, thread_id), token, TTL_SECONDS * 1000
            )

    async def publish_end(
        self, namespace: str, thread_id: ThreadID, log: str, run_id: RunUID, token: FencingToken, outcome: str
    ) -> None:
        """Tell readers that the run is settled, in place of a holder that cannot; only after the settlement
        committed. A second end frame is harmless: readers ask the store."""
        async with translated("publishing the end", CALL_SECONDS):
            await self._redis.call(
                *("EVAL", _END_SCRIPT, 1, stream_key(namespace, thread_id, log)),
                *(MAX_LENGTH, TTL_SECONDS * 1000, run_id, token, encode({"outcome": outcome}) or b""),
            )

    async def publishers(self) -> list[tuple[ThreadID, FencingToken]]:
        """Every (thread, token) that has a user, to find those that a dead operator left behind."""
        async with translated("listing users", CALL_SECONDS):
            names: list[bytes] = await self._redis.call("ACL USERS")
        found = (parse_user(name.decode() if isinstance(name, bytes) else name) for name in names)
        return [(ThreadID(user[0]), FencingToken(user[1])) for user in found if user]

    async def admit_reader(self, user: str, password: str) -> None:
        """Make the gateways' read-only user."""
        async with translated("admitting a reader", CALL_SECONDS):
            await self._redis.call("ACL SETUSER", user, *reader_rules(password))

    async def nudge(self, namespace: str, run_id: RunUID, what: str) -> None:
        """Wake whoever listens."""
        async with translated("nudging", CALL_SECONDS):
            await self._redis.call("PUBLISH", nudge_channel(namespace), nudge_text(run_id, what))

    async def nudges(self, namespaces: Sequence[str] = ()) -> AsyncGenerator[Nudge]:
        """Nudges of these namespaces, of all where none is named, until the caller stops.

        Starts and restarts with a Nudge without a run, once per connection. While Redis is away it tries
        again with growing pauses (0.5 to 30 s) and yields nothing.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                async with self._subscription(namespaces) as subscription:
                    pause = _FIRST_PAUSE_SECONDS
                    yield Nudge(namespace="", run_id=None, what="connected")
                    while True:
                        nudge = await _next_nudge(subscription)
                        if nudge:
                            yield nudge
            except WireUnavailable:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    @asynccontextmanager
    async def _subscription(self, namespaces: Sequence[str]) -> AsyncIterator[PubSub]:
        subscription = self._listener.pubsub()
        try:
            async with translated("subscribing", CALL_SECONDS):
                patterns = [nudge_channel(namespace) for namespace in namespaces or ("*",)]
                await subscription.psubscribe(*patterns)
                # Each is confirmed by a message, and a nudge may come between two confirmations.
                while await subscription.get_message(timeout=CALL_SECONDS) is None:
                    pass
            yield subscription
        finally:
            await subscription.aclose()  # type: ignore[no-untyped-call]

    async def _raise_token(
        self, namespace: str, thread_id: ThreadID, token: FencingToken
    ) -> tuple[bool, FencingToken]:
        """Whether the key now holds `token`, and what it held before."""
        raised, before = await self._redis.call(
            "EVAL", _RAISE_SCRIPT, 1, token_key(namespace, thread_id), token
        )
        return bool(raised), FencingToken(int(before))


async def _next_nudge(subscription: PubSub) -> Nudge | None:
    """The next message, None after a silence in which the connection proved alive."""
    async with translated("listening", _SILENCE_SECONDS + CALL_SECONDS):
        message = await subscription.get_message(timeout=_SILENCE_SECONDS)
        if message is None:
            await subscription.ping()
            message = await subscription.get_message(timeout=CALL_SECONDS)
            if message is None:
                raise TimeoutError
    return parse_nudge(message["channel"], message["data"]) if message["type"] == "pmessage" else None


def parse_nudge(channel: bytes, data: bytes) -> Nudge | None:
    """The nudge in a message; None for what no program of ours sent (any agent may publish here)."""
    if len(data) > NUDGE_BYTES_LIMIT:
        return None
    try:
        body = json.loads(data)
        run_id, what = body["run"], body["what"]
        namespace = channel.decode().split(":")[1]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
    if not isinstance(run_id, str) or not isinstance(what, str):
        return None
    return Nudge(namespace, RunUID(run_id), what)


@asynccontextmanager
async def open_wire(url: str) -> AsyncIterator[Wire]:
    """The operator's wire; connects on first use, so that an absent Redis stops nothing."""
    redis = Client(url, name="treadle-operator")
    listener = Client(url, name="treadle-operator-nudges", blocking=True, max_connections=1)
    try:
        yield Wire(redis, listener)
    finally:
        await redis.close()
        await listener.close()
