"""The one queue through which a run writes: events, pending writes, checkpoints, manifests, in order.

While one statement is under way, whatever is handed over waits and then travels together in the next one: a
whole step costs one commit without anybody holding anything back. A finished task's writes therefore never
wait for the checkpoint, and a checkpoint never overtakes the writes and events before it.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from treadle_api.records import Appended, Capability, Event, Manifest
from treadle_store.checkpoints import CheckpointRow, WriteRow
from treadle_store.errors import StaleToken, StoreError, StoreFailedOver, StoreRejected, StoreUnavailable
from treadle_store.pool import Executor
from treadle_store.steps import commit_step

T = TypeVar("T")

_EVENT_SIZE_GUESS: Final = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a StepSender. Sizes in bytes, times in seconds."""

    queued_items: int = 512
    queued_bytes: int = 64 * 1024 * 1024
    statement_items: int = 128
    statement_bytes: int = 16 * 1024 * 1024
    statement_events: int = 1000
    """The store refuses more in one statement."""
    retry_seconds: float = 30.0
    first_delay: float = 0.05
    longest_delay: float = 2.0


@dataclass(slots=True, eq=False)
class _Item:
    events: Sequence[Event]
    writes: Sequence[WriteRow]
    checkpoint: CheckpointRow | None
    manifest: Manifest | None
    size: int
    done: asyncio.Future[Appended] = field(repr=False)


class StepSender:
    """FIFO of one run's writes, shared by its saver (and the saver's clones) and its journal.

    `lost` is set once and for all by the first answer that ends this attempt's right or ability to write:
    StaleToken, StoreFailedOver, or a store that stayed away longer than `limits.retry_seconds`. From then
    on everything queued and everything new fails with it: nothing may overtake what was not written.
    """

    def __init__(
        self,
        db: Executor,
        capability: Capability,
        *,
        on_stale: Callable[[StoreError], None] | None = None,
        head_seq: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`head_seq`: the log's head at the claim; with it, seqs are known even after a lost answer."""
        self.lost: StoreError | None = None
        self._db = db
        self._capability = capability
        self._on_stale = on_stale
        self._head_seq = head_seq
        self._limits = limits or Limits()
        self._queue: deque[_Item] = deque()
        self._bytes = 0
        self._sending: list[_Item] = []
        self._entry = asyncio.Lock()
        self._room = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self.statements = 0
        """Statements sent so far, repeats included."""

    async def send(
        self,
        *,
        events: Sequence[Event] = (),
        writes: Sequence[WriteRow] = (),
        checkpoint: CheckpointRow | None = None,
        manifest: Manifest | None = None,
    ) -> Appended:
        """Hand over and wait until it is durable; the answer's seqs are those of `events`.

        Waits for room first when the queue is at its limit. A caller that is cancelled while it waits takes
        nothing back: what was queued is still written, once.

        Raises StoreRejected for these rows alone, and `lost` (StaleToken, StoreFailedOver, StoreUnavailable).
        """
        size = _size(events, writes, checkpoint)
        async with self._entry:  # fair: a later caller cannot slip past one that waits for room
            while self.lost is None and self._full(size):
                self._room.clear()
                await self._room.wait()
            if self.lost is not None:
                raise self.lost
            done = asyncio.get_running_loop().create_future()
            item = _Item(events, writes, checkpoint, manifest, size, done)
            self._queue.append(item)
            self._bytes += size
            if self._pump is None:
                self._pump = asyncio.create_task(self._run(), name="step sender")
        return await item.done

    async def drained(self) -> None:
        """Wait until everything handed over so far was answered. Raises `lost`."""
        while (pump := self._pump) is not None:
            await asyncio.wait((pump,))
        if self.lost is not None:
            raise self.lost

    async def call(self, statement: Callable[[], Awaitable[T]]) -> T:
        """Run an idempotent statement of this run outside the queue, after everything queued before it.

        Repeats it while the store is away, and ends this sender when it meets the fence.
        """
        await self.drained()
        try:
            return await self._persist(lambda _retry: statement())
        except (StaleToken, StoreFailedOver) as error:
            self.fence(error)
            raise

    def fence(self, error: StoreError) -> None:
        """End this sender: nothing more is written. Called by whoever else meets the fence first."""
        if self.lost is not None:
            return
        self.lost = error
        for item in self._queue:
            self._fail(item, error)
        self._queue.clear()
        self._room.set()
        if self._on_stale is not None and isinstance(error, StaleToken | StoreFailedOver):
            self._on_stale(error)

    def _full(self, size: int) -> bool:
        if not self._queue:
            return False  # an item above the limit travels alone
        limits = self._limits
        return len(self._queue) >= limits.queued_items or self._bytes + size > limits.queued_bytes

    async def _run(self) -> None:
        try:
            while self._queue:
                self._sending = self._take()
                self._room.set()
                await self._deliver(self._sending)
        except BaseException as error:
            # Only a loop that shuts down, or a defect, ends here: nobody may wait for ever.
            ended = StoreUnavailable(f"the step sender ended: {error!r}", maybe_committed=True)
            ended.__cause__ = error
            for item in self._sending:
                self._fail(item, ended)
            self.fence(ended)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._pump = None

    def _take(self) -> list[_Item]:
        """The longest beginning of the queue that fits one statement, at least one item."""
        batch: list[_Item] = []
        limits = self._limits
        size = events = 0
        while self._queue and len(batch) < limits.statement_items:
            head = self._queue[0]
            if batch and (
                size + head.size > limits.statement_bytes
                or events + len(head.events) > limits.statement_events
            ):
                break
            item = self._queue.popleft()
            size += item.size
            events += len(item.events)
            self._bytes -= item.size
            batch.append(item)
        return batch

    async def _deliver(self, batch: list[_Item]) -> None:
        try:
            appended = await self._commit(batch)
        except StoreRejected as error:
            if len(batch) == 1:
                self._fail(batch[0], error)
                return
            for item in batch:  # nothing of the batch was written: find the one that is refused
                await self._deliver([item])
        except StoreError as error:
            self.fence(error)
            for item in batch:
                self._fail(item, error)
        else:
            self._answer(batch, appended)

    async def _commit(self, batch: list[_Item]) -> Appended:
        events = [event for item in batch for event in item.events]
        writes = [write for item in batch for write in item.writes]
        checkpoints = [item.checkpoint for item in batch if item.checkpoint is not None]
        # The newest one holds what those before it held.
        manifest = next((item.manifest for item in reversed(batch) if item.manifest is not None), None)

        async def attempt(retry: bool) -> Appended:
            self.statements += 1
            return await commit_step(
                self._db,
                self._capability,
                events=events,
                writes=writes,
                checkpoints=checkpoints,
                manifest=manifest,
                retry=retry,
            )

        return await self._persist(attempt)

    async def _persist(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """`attempt(retry)` until the store answers, for at most `retry_seconds`; True after a lost answer."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._limits.retry_seconds
        delay = self._limits.first_delay
        retry = False
        while True:
            if self.lost is not None:
                raise self.lost
            try:
                return await attempt(retry)
            except StoreUnavailable as error:
                retry = retry or error.maybe_committed
                if clock() + delay > deadline:
                    raise
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            delay = min(delay * 2, self._limits.longest_delay)

    def _answer(self, batch: list[_Item], appended: Appended) -> None:
        total = sum(len(item.events) for item in batch)
        first = self._first_seq(appended, total)
        for item in batch:
            count = len(item.events)
            if not item.done.done():
                item.done.set_result(
                    Appended(first=first, last=first + count - 1, new=count, cancel=appended.cancel)
                    if first is not None
                    else appended
                )
            if first is not None:
                first += count
        self._head_seq = appended.last

    def _first_seq(self, appended: Appended, total: int) -> int | None:
        """The seq of the batch's first event; None where the answer does not tell.

        After a lost answer the store says that nothing was new. This sender is the only one who appends
        while its token holds, so the batch is what lies between the head it knew and the head now.
        """
        if appended.new == total:
            return appended.first
        if self._head_seq is not None and appended.last == self._head_seq + total:
            return self._head_seq + 1
        return None

    @staticmethod
    def _fail(item: _Item, error: StoreError) -> None:
        if not item.done.done():
            item.done.set_exception(error)


def _size(events: Sequence[Event], writes: Sequence[WriteRow], checkpoint: CheckpointRow | None) -> int:
    size = len(events) * _EVENT_SIZE_GUESS + sum(len(write.data) for write in writes)
    if checkpoint is not None:
        size += sum(len(blob.data) for blob in checkpoint.blobs)
    return size
