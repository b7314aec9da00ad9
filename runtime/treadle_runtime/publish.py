"""From the agent to the live wire: committed events, deltas in between, never in the run's way."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from treadle_api.records import Event, FencingToken, Frame, Json, RunUID
from treadle_runtime.events import bounded
from treadle_store.streams import WireUnavailable

log = logging.getLogger(__name__)

_WINDOW_SECONDS: Final = 0.01
_QUEUE_LIMIT: Final = 5000
_BATCH: Final = 200
_CLOSE_SECONDS: Final = 2.0


class Wire(Protocol):
    """The publishing end of the wire, as `treadle_store.streams.Publisher` is."""

    async def publish(self, frames: Sequence[Frame]) -> bool: ...

    async def publish_end(self, outcome: str) -> bool: ...

    async def nudge(self, what: str) -> None: ...


class Broadcast:
    """Frames in order, in micro-batches of 10 ms. Redis away: `degraded`, frames are lost, the run goes on.

    Committed frames that are lost are found in the log by every reader; lost deltas are told as a gap by
    the wire. A publisher that is told that its token is stale says nothing more.
    """

    def __init__(self, wire: Wire | None, run_id: RunUID, token: FencingToken, head_seq: int) -> None:
        self.degraded = wire is None
        self._wire = wire
        self._run_id = run_id
        self._token = token
        self._seq = head_seq
        self._held: list[tuple[str, Json]] = []
        self._queue: asyncio.Queue[Frame] = asyncio.Queue(_QUEUE_LIMIT)
        self._task: asyncio.Task[None] | None = None
        self._nudging: list[asyncio.Task[None]] = []
        self._silent = wire is None

    async def __aenter__(self) -> "Broadcast":
        if self._wire is not None:
            self._task = asyncio.create_task(self._pump(self._wire), name="broadcast")
        return self

    async def __aexit__(self, *_: object) -> None:
        running = [*self._nudging, *([self._task] if self._task else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def committed(self, events: Sequence[Event], first_seq: int) -> None:
        """Publish events that are in the log from `first_seq` on."""
        for offset, event in enumerate(events):
            self._seq = max(self._seq, first_seq + offset)
            self._put(f"{first_seq + offset}-0", event.type, event.payload)

    def delta(self, kind: str, data: dict[str, Any]) -> None:
        """Publish something that carries no truth: tokens, custom data of a node."""
        self._put(f"{self._seq}-*", kind, bounded(data))

    def hold(self, kind: str, data: dict[str, Any]) -> None:
        """Keep an update of a step until the step is committed: no reader sees what may not come to be."""
        if not self._silent:
            self._held.append((kind, bounded(data)))

    def step_committed(self) -> None:
        held, self._held = self._held, []
        for kind, data in held:
            self._put(f"{self._seq}-*", kind, data)

    async def end(self, outcome: str) -> None:
        """Send what is queued, then the end frame and a nudge; after the settlement only, and bounded."""
        if self._wire is None or self._silent:
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._queue.join()
                await self._wire.publish_end(outcome)
                await self._wire.nudge("settled")
        except (TimeoutError, WireUnavailable) as error:
            log.warning("end frame not published", extra={"fields": {"error": str(error) or "timed out"}})

    def nudge_soon(self, what: str) -> None:
        """Wake the operator without waiting for it; a lost nudge costs latency only."""
        if self._wire is not None:
            self._nudging.append(asyncio.create_task(self._nudge(self._wire, what)))

    async def _nudge(self, wire: Wire, what: str) -> None:
        try:
            await wire.nudge(what)
        except WireUnavailable as error:
            log.info("nudge lost", extra={"fields": {"error": str(error)}})

    def _put(self, identity: str, kind: str, data: Json) -> None:
        if self._silent:
            return
        try:
            self._queue.put_nowait(Frame(identity, self._run_id, self._token, kind, data))
        except asyncio.QueueFull:
            self._note(degraded=True, why="the queue of frames is full")

    async def _pump(self, wire: Wire) -> None:
        while True:
            frames = [await self._queue.get()]
            await asyncio.sleep(_WINDOW_SECONDS)
            while len(frames) < _BATCH and not self._queue.empty():
                frames.append(self._queue.get_nowait())
            try:
                if not await wire.publish(frames):
                    self._silent = True
                    log.warning("stream refused our token")
                self._note(degraded=False)
            except WireUnavailable as error:
                self._note(degraded=True, why=str(error))
            finally:
                for _ in frames:
                    self._queue.task_done()

    def _note(self, *, degraded: bool, why: str = "") -> None:
        if degraded != self.degraded:
            self.degraded = degraded
            log.info("stream degraded" if degraded else "stream restored", extra={"fields": {"reason": why}})
