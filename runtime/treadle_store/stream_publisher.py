"""What an agent puts on the live wire: committed events and the deltas between them."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from treadle_api.names import nudge_channel, stream_key, stream_password, stream_user, token_key
from treadle_api.records import Assignment, FencingToken, Frame, RunUID

from .stream_client import Client, WireUnavailable, encode, translated

MAX_LENGTH: Final = 2000
"""Entries kept per stream, approximately."""
TTL_SECONDS: Final = 86_400
"""A stream vanishes this long after its last frame."""
PUBLISH_SECONDS: Final = 2.0
"""Longest that one `publish` holds up the agent."""
BATCH_FRAMES: Final = 64
BATCH_BYTES: Final = 262_144

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0

PUBLISH_SCRIPT: Final = """
local current = redis.call('GET', ARGV[1])
if not current then return -2 end
if current ~= ARGV[2] then
  if tonumber(current) > tonumber(ARGV[2]) then return -1 end
  return -2
end
local top = -1
local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then top = tonumber(string.match(info[i + 1], '^%d+')) end
end
if top > tonumber(ARGV[5]) then
  redis.call('UNLINK', KEYS[1])
  top = -1
end
local added = 0
for i = 6, #ARGV, 4 do
  local id = ARGV[i]
  local seq, n = string.match(id, '^(%d+)%-(.+)$')
  seq = tonumber(seq)
  if n == '*' and top > seq then
    id = string.format('%.0f-*', top)
  elseif n == '*' and top < seq then
    id = string.format('%.0f-1', seq)
  end
  local reply = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], id,
                            'run', ARGV[i + 1], 'token', ARGV[2], 'type', ARGV[i + 2], 'data', ARGV[i + 3])
  if type(reply) == 'string' then
    added = added + 1
    top = math.max(top, seq)
  elseif not string.find(reply.err, 'equal or smaller') then
    return reply
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return added
"""
"""KEYS: the stream. ARGV: token key, token, length, ttl in ms, highest seq this publisher ever sent, then
(id, run, type, data) per frame. Answers how many were added, -1 to a stale publisher, -2 where the
operator has not (again) granted the token.

An event that is already there is left alone: that is a repeated batch. A delta never fails for its place:
it goes behind the newest entry, and never takes the `-0` of an event that is not on the wire. A top above
everything that this thread's one publisher has sent was not written by a publisher of ours and would shut
the stream for ever: it is thrown away, and readers are told by the gap.
"""
PUBLISH_SHA: Final = hashlib.sha1(PUBLISH_SCRIPT.encode(), usedforsecurity=False).hexdigest()
"""Agents may only run scripts by hash; the operator loads this one with every grant."""

_STALE, _NOT_GRANTED = -1, -2


def end_frame(run_id: RunUID, token: FencingToken, outcome: str) -> Frame:
    """The frame that tells readers to look for the receipt. It proves nothing by itself."""
    return Frame(id="0-*", run_id=run_id, token=token, type="end", data={"outcome": outcome})


class Publisher:
    """The publishing end of one assignment; an async context manager.

    While Redis is away a call costs at most `PUBLISH_SECONDS`, then nothing until the next attempt is due
    (0.5 s, doubling to 30 s): the run never waits for its stream.
    """

    def __init__(
        self, url: str, assignment: Assignment, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        own = assignment.capability
        self._namespace = assignment.namespace
        self._run_id = own.run_id
        self._token = own.token
        self._stream = stream_key(assignment.namespace, own.thread_id, assignment.log)
        self._token_key = token_key(assignment.namespace, own.thread_id)
        self._redis = Client(
            url,
            name="treadle-agent",
            username=stream_user(own.thread_id, own.token),
            password=stream_password(own.fence_key),
            max_connections=2,
        )
        self._clock = clock
        self._high = 0
        self._lost = 0
        self._pause = _FIRST_PAUSE_SECONDS
        self._not_before = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._redis.close()

    async def publish(self, frames: Sequence[Frame]) -> bool:
        """Put `frames` on the wire in their order; False where this token is no longer the thread's.

        `id` is `<seq>-0` for a committed event, whose `data` is the event's payload as committed, and
        `<seq>-*` for a delta after event `seq`. Only what is committed may be published. Deltas that do
        not reach Redis are lost and said to be lost in a `gap` frame before the next one; events that do
        not are found in the log by every reader.

        Raises WireUnavailable; the caller goes on and does not repeat the frames.
        """
        if self._clock() < self._not_before:
            self._lost += sum(not _is_event(frame) for frame in frames)
            raise WireUnavailable("publishing", "waiting to reconnect")
        self._high = max([self._high, *(_seq(frame) for frame in frames)])
        batches = self._batches(frames)
        try:
            async with translated("publishing", PUBLISH_SECONDS):
                while batches:
                    if not await self._send(batches[0]):
                        return False
                    batches.pop(0)
        except WireUnavailable:
            self._lost += sum(batch.deltas for batch in batches)
            self._not_before = self._clock() + self._pause
            self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
            raise
        self._pause = _FIRST_PAUSE_SECONDS
        return True

    async def publish_end(self, outcome: str) -> bool:
        """Tell readers that the run is settled; to be called after the settlement committed."""
        return await self.publish([end_frame(self._run_id, self._token, outcome)])

    async def nudge(self, what: str) -> None:
        """Wake the operator. Raises WireUnavailable; a lost nudge costs latency only."""
        async with translated("nudging", PUBLISH_SECONDS):
            await self._redis.call("PUBLISH", nudge_channel(self._namespace), nudge_text(self._run_id, what))

    def _batches(self, frames: Sequence[Frame]) -> list["_Batch"]:
        """`frames` in calls that hold Redis up only shortly. A delta too large for a frame is lost."""
        batches = [_Batch()]
        for frame in frames:
            data = encode(frame.data)
            if data is None and not _is_event(frame):
                self._lost += 1
                continue
            if batches[-1].full:
                batches.append(_Batch())
            batches[-1].add(frame, data or b"")
        return [batch for batch in batches if batch.frames]

    async def _send(self, batch: "_Batch") -> bool:
        lost = self._lost
        notice: list[str] = []
        if lost:
            notice = ["0-*", self._run_id, "gap", json.dumps({"reason": "wire_unavailable", "lost": lost})]
        answer = await self._redis.call(
            *("EVALSHA", PUBLISH_SHA, 1, self._stream),
            *(self._token_key, self._token, MAX_LENGTH, TTL_SECONDS * 1000, self._high),
            *(*notice, *batch.arguments),
        )
        if answer == _NOT_GRANTED:
            raise WireUnavailable("publishing", "the operator has not granted this token yet")
        self._lost -= lost
        return bool(answer != _STALE)


@dataclass(slots=True)
class _Batch:
    """The frames of one call of the script."""

    arguments: list[bytes | str] = field(default_factory=list)
    frames: int = 0
    deltas: int = 0
    size: int = 0

    @property
    def full(self) -> bool:
        return self.frames >= BATCH_FRAMES or self.size >= BATCH_BYTES

    def add(self, frame: Frame, data: bytes) -> None:
        self.arguments += [frame.id, frame.run_id, frame.type, data]
        self.frames += 1
        self.deltas += not _is_event(frame)
        self.size += len(data)


def nudge_text(run_id: RunUID, what: str) -> str:
    """The body of a nudge: which run to look at, and why, in one word."""
    return json.dumps({"run": run_id, "what": what}, separators=(",", ":"))


def _seq(frame: Frame) -> int:
    return int(frame.id.partition("-")[0])


def _is_event(frame: Frame) -> bool:
    return frame.id.endswith("-0")
