"""What leaves the agent: one door for events, steps and manifests, and the frames that follow a commit."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from treadle_api.records import Appended, Capability, Event, Manifest
from treadle_runtime.delivery import differences
from treadle_runtime.events import make_event
from treadle_runtime.failpoints import Failpoints
from treadle_runtime.ownership import Ownership
from treadle_runtime.publish import Broadcast
from treadle_runtime.sender import StepSender
from treadle_runtime.workspace.plane import WorkspacePlane
from treadle_store.checkpoints import CheckpointRow, WriteRow
from treadle_store.errors import StoreError
from treadle_store.pool import Executor


@dataclass(frozen=True, slots=True)
class StepNotes:
    """What a step's sender knows beyond its rows: the events that the rows are, and whose they are.

    `task`: the task whose writes these are. `closes`: the rows end a superstep, no task is left over.
    """

    events: Sequence[Event] = ()
    task: str | None = None
    closes: bool = False


_NOTHING = StepNotes()
_notes: ContextVar[StepNotes] = ContextVar("notes of the step being written", default=_NOTHING)


def _look(sending: asyncio.Future[Appended]) -> None:
    if not sending.cancelled():
        sending.exception()


class RunWriter(StepSender):
    """The run's StepSender, with what belongs to a step put into the same statement.

    A task's writes and a checkpoint take along the changed workspace, the events that the step itself
    tells (`StepNotes`), and whatever the journal has buffered so far, so that the log's order is that of
    what happened. Frames of events are published after their commit, never before.
    """

    def __init__(
        self,
        db: Executor,
        capability: Capability,
        *,
        head_seq: int,
        ownership: Ownership,
        broadcast: Broadcast,
        failpoints: Failpoints,
    ) -> None:
        super().__init__(db, capability, on_stale=ownership.lose, head_seq=head_seq)
        self.head_seq = head_seq
        self._ownership = ownership
        self._broadcast = broadcast
        self._failpoints = failpoints
        self._workspace: WorkspacePlane | None = None
        self._take_buffered: Callable[[], list[Event]] = list
        self._give_back: Callable[[list[Event]], None] = lambda _events: None
        self._order = asyncio.Lock()
        self._broken: Exception | None = None

    def attach(
        self,
        workspace: WorkspacePlane,
        take_buffered: Callable[[], list[Event]],
        give_back: Callable[[list[Event]], None],
    ) -> None:
        """Name the workspace to capture and the journal's buffer; needed once, before the graph runs."""
        self._workspace = workspace
        self._take_buffered = take_buffered
        self._give_back = give_back

    async def send(
        self,
        *,
        events: Sequence[Event] = (),
        writes: Sequence[WriteRow] = (),
        checkpoint: CheckpointRow | None = None,
        manifest: Manifest | None = None,
    ) -> Appended:
        if not writes and checkpoint is None:
            return await self._send(events, manifest=manifest)
        point = "writes" if writes else "checkpoint"
        buffered: list[Event] = []
        async with self._order:
            # Whoever comes first is queued first: a capture must not let a checkpoint overtake its writes.
            notes = _notes.get()
            self._land(notes)
            captured = await self._captured_for_step()
            buffered = self._take_buffered()
            told = [*buffered, *notes.events, *events]
            if captured is not None:
                told.append(captured[1])
            self._failpoints.reach(f"before_{point}")
            sending = asyncio.ensure_future(
                self._send(told, writes, checkpoint, captured[0] if captured else manifest)
            )
            # A caller that is cancelled takes nothing back; then nobody asks for the result.
            sending.add_done_callback(_look)
            await asyncio.sleep(0)
        try:
            appended = await asyncio.shield(sending)
        except StoreError:
            self._give_back(buffered)
            raise
        self._failpoints.reach(f"after_{point}")
        if checkpoint is not None:
            self._broadcast.step_committed()
        return appended

    async def save_workspace(self) -> None:
        """Write the workspace as it is now, where it changed since the last step."""
        async with self._order:
            captured = await self._captured()
            if captured is not None:
                await self._send([captured[1]], manifest=captured[0])

    @contextmanager
    def noting(self, notes: StepNotes) -> Iterator[None]:
        """Let `notes` travel with the step that the current task sends inside the block."""
        token = _notes.set(notes)
        try:
            yield
        finally:
            _notes.reset(token)

    def _land(self, notes: StepNotes) -> None:
        if self._workspace is not None and (notes.closes or notes.task is not None):
            self._workspace.in_flight.land(None if notes.closes else notes.task)

    async def _captured_for_step(self) -> tuple[Manifest, Event] | None:
        """The changed workspace. Once it could not be captured, no later step is written either.

        LangGraph looks at a failed write of pending writes only when the graph has ended; a checkpoint that
        went on without it would hold answers whose files are nowhere.
        """
        if self._broken is not None:
            raise self._broken
        try:
            return await self._captured()
        except Exception as error:
            self._broken = error
            raise

    async def _captured(self) -> tuple[Manifest, Event] | None:
        if self._workspace is None:
            return None
        before = self._workspace.entries
        manifest = await self._workspace.capture()
        if manifest is None:
            return None
        changes = differences(before, manifest.entries)
        payload = {
            "manifest": str(manifest.manifest_id),
            "added": list(changes.added),
            "modified": list(changes.modified),
            "deleted": list(changes.deleted),
            "files": len(manifest.entries),
            "bytes": sum(entry.size for entry in manifest.entries),
        }
        return manifest, make_event("workspace.changed", payload)

    async def _send(
        self,
        events: Sequence[Event],
        writes: Sequence[WriteRow] = (),
        checkpoint: CheckpointRow | None = None,
        manifest: Manifest | None = None,
    ) -> Appended:
        appended = await super().send(events=events, writes=writes, checkpoint=checkpoint, manifest=manifest)
        self._ownership.note_cancel(appended.cancel)
        self.head_seq = max(self.head_seq, appended.last)
        if appended.new == len(events):
            self._broadcast.committed(events, appended.first)
        return appended
