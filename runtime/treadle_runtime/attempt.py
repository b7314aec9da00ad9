"""A claimed attempt: its parts mounted, the workspace restored, the graph run, the run settled."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from treadle_api.contract import ExitCode
from treadle_api.reasons import Reason
from treadle_api.records import Assignment, Capability, Claim
from treadle_api.resolved import ResolvedRun
from treadle_runtime import outcome
from treadle_runtime.barrier import Barrier
from treadle_runtime.callbacks import RunCallbacks
from treadle_runtime.endings import AttemptOver, Misconfigured
from treadle_runtime.events import make_event
from treadle_runtime.executor import Drained, Ending, Executor, Failed
from treadle_runtime.graphs.context import BuildContext
from treadle_runtime.graphs.loading import Graph, GraphNotLoaded, compile_graph
from treadle_runtime.journal import Journal
from treadle_runtime.models.build import ModelConfigurationError, build_model
from treadle_runtime.models.script import ScriptError
from treadle_runtime.outcome import Verdict
from treadle_runtime.ownership import Ownership
from treadle_runtime.publish import Broadcast
from treadle_runtime.runinput import InputError, graph_input, input_event
from treadle_runtime.saver import RunSaver
from treadle_runtime.serde import UnreadableValue
from treadle_runtime.settings import Settings
from treadle_runtime.settlement import ReceiptUnwritable, Settlement
from treadle_runtime.termination import explain
from treadle_runtime.tools.catalog import UnknownTool, built_in
from treadle_runtime.workspace.files import Directory, WorkspaceError
from treadle_runtime.workspace.plane import BlobMismatch, WorkspacePlane
from treadle_runtime.writer import RunWriter
from treadle_store.errors import StaleToken, StoreError, StoreFailedOver
from treadle_store.pool import Pool
from treadle_store.streams import Publisher

log = logging.getLogger(__name__)

_STOP_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Held:
    """What an attempt has in hand once it has claimed its run."""

    settings: Settings
    db: Pool
    assignment: Assignment
    claim: Claim
    config: ResolvedRun

    @property
    def capability(self) -> Capability:
        return self.assignment.capability


@dataclass(frozen=True, slots=True)
class Parts:
    """What is opened for an attempt and closed after it (R77)."""

    broadcast: Broadcast
    ownership: Ownership
    writer: RunWriter
    journal: Journal
    workspace: WorkspacePlane


@asynccontextmanager
async def mounted(held: Held) -> AsyncIterator[Parts]:
    """Open stream, writer, journal, workspace and heartbeat of an attempt; close them in reverse."""
    capability, config, settings = held.capability, held.config, held.settings
    async with AsyncExitStack() as stack:
        wire = None
        if settings.stream_url:
            wire = await stack.enter_async_context(Publisher(settings.stream_url, held.assignment))
        broadcast = await stack.enter_async_context(
            Broadcast(wire, capability.run_id, capability.token, held.claim.head_seq)
        )
        ownership = Ownership(held.db, capability)
        writer = RunWriter(
            held.db,
            capability,
            head_seq=held.claim.head_seq,
            ownership=ownership,
            broadcast=broadcast,
            failpoints=settings.failpoints,
        )
        journal = await stack.enter_async_context(Journal(lambda events: writer.send(events=events)))
        directory = Directory(settings.workspace, config.workspace)
        workspace = WorkspacePlane(held.db, capability, writer, directory)
        writer.attach(workspace, journal.take, journal.give_back)
        beating = asyncio.create_task(ownership.beat(writer, float(config.lease.renew_seconds)))
        stack.push_async_callback(_end, beating)
        broadcast.nudge_soon("claimed")
        yield Parts(broadcast, ownership, writer, journal, workspace)


class Attempt:
    """Executes what was claimed. `keeper_gone` is set when nobody renews the Lease any more."""

    def __init__(self, held: Held, parts: Parts, keeper_gone: asyncio.Event) -> None:
        self._held = held
        self._parts = parts
        self._keeper_gone = keeper_gone
        self._executor: Executor | None = None
        self._stop_reason: str | None = None
        self._reach = held.settings.failpoints.reach
        self._barrier = Barrier()
        self._barrier.mount("workspace", parts.writer.save_workspace)
        self._barrier.mount("journal", parts.journal.flush)
        self._barrier.mount("ownership", lambda: parts.ownership.confirm(parts.writer), last=True)
        self._callbacks = RunCallbacks(self._barrier, parts.journal.record, held.settings.failpoints)

    def stop(self, reason: str) -> None:
        """Drain: stop before the next superstep; the next attempt goes on."""
        self._stop_reason = reason
        if self._executor is not None:
            self._executor.drain(reason)

    async def execute(self, found: Awaitable[Any]) -> ExitCode:
        """Restore, run, settle. Raises Misconfigured, AttemptOver, StoreError."""
        ownership = self._parts.ownership
        ownership.note_cancel(self._held.claim.cancel)
        await self._restore()
        self._reach("after_restore")
        given = self._given()
        executor = await self._prepare(found, given)
        await self._parts.journal.record(
            make_event(
                "run.start", {"attempt": self._held.assignment.attempt, "pod": self._held.settings.pod_uid}
            )
        )
        ending = await self._guarded(executor.run(given))
        self._reach("after_graph")
        verdict: Verdict | None = None
        if isinstance(ending, Drained):
            if ownership.cancel is None:
                await self._barrier()
                raise AttemptOver(
                    ExitCode.TRY_AGAIN, "drained at a step's boundary; the next attempt goes on"
                )
            verdict = outcome.of_cancel(ownership.cancel)
        return await self._settle(ending, verdict)

    async def _restore(self) -> None:
        try:
            await self._parts.workspace.restore(self._held.claim)
        except (WorkspaceError, BlobMismatch) as error:
            raise Misconfigured(Reason.WORKSPACE_LIMIT_EXCEEDED, str(error)) from error

    def _given(self) -> dict[str, Any]:
        try:
            return graph_input(self._held.claim.input, self._held.capability.run_id)
        except InputError as error:
            raise Misconfigured(Reason.INPUT_UNAVAILABLE, str(error)) from error

    async def _prepare(self, found: Awaitable[Any], given: dict[str, Any]) -> Executor:
        graph = await self._graph(found)
        held, parts = self._held, self._parts
        saver = RunSaver(held.db, held.capability, parts.writer, input_event(given))
        await saver.prepare()
        executor = Executor(
            graph,
            saver,
            held.capability,
            self._callbacks,
            parts.broadcast,
            recursion_limit=held.config.recursion_limit,
            configurable=held.config.configurable,
        )
        self._barrier.check()
        self._executor = executor
        if self._stop_reason is not None:
            executor.drain(self._stop_reason)
        parts.ownership.when_cancelled(lambda action: executor.drain(f"cancel: {action}"))
        return executor

    async def _graph(self, found: Awaitable[Any]) -> Graph:
        config, plane, run_id = self._held.config, self._parts.workspace, self._held.capability.run_id
        try:
            tools = built_in(config.tools, plane.directory, plane.in_flight, run_id)
            model = build_model(config.model, self._held.settings.model_api_key)
            context = BuildContext(run_id, config, model, tools, plane.directory)
            return await compile_graph(await found, config.graph, context)
        except GraphNotLoaded as error:
            raise Misconfigured(Reason.GRAPH_NOT_LOADED, str(error)) from error
        except (ModelConfigurationError, ScriptError, UnknownTool) as error:
            raise Misconfigured(Reason.CONFIGURATION_INVALID, str(error)) from error
        except Exception as error:
            # The factory is the user's code: whatever it raises is why there is no graph.
            message = f"graph {config.graph} cannot be built: {type(error).__name__}: {error}"
            raise Misconfigured(Reason.GRAPH_NOT_LOADED, message) from error

    async def _guarded(self, work: Awaitable[Ending]) -> Ending:
        """The graph's ending; at the first sign of lost ownership the graph is cancelled instead."""
        lost = self._parts.ownership.lost
        task = asyncio.ensure_future(work)
        gone = asyncio.create_task(self._keeper_gone.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {task, gone, lost}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not lost.done():
                return task.result()
        except UnreadableValue as error:
            raise Misconfigured(Reason.CHECKPOINT_INCOMPATIBLE, str(error)) from error
        finally:
            gone.cancel()
            await _stop(task)
        if lost.done():
            raise lost.result()
        raise AttemptOver(ExitCode.TRY_AGAIN, "the keeper is gone, nobody renews the Lease")

    async def _settle(self, ending: Ending, verdict: Verdict | None) -> ExitCode:
        held, parts = self._held, self._parts
        try:
            await self._barrier()
        except WorkspaceError as error:
            ending, verdict = Failed(outcome.describe(error), ending.values, ending.checkpoint), None
            await parts.journal.flush()
        except StoreError as error:
            if not parts.journal.buffered or isinstance(error, StaleToken | StoreFailedOver):
                raise
            # An ordinary flush failure does not stop the receipt: it is said in it (R55).
            parts.journal.complete = False
        if verdict is None and isinstance(ending, Failed):
            self._leave_to_the_next(outcome.of_failure(ending.failure))
        settlement = Settlement(
            held.db,
            held.assignment,
            held.claim,
            held.config,
            parts.workspace,
            parts.journal,
            self._callbacks,
            parts.broadcast,
            held.settings.failpoints,
        )
        try:
            settled = await settlement.settle(ending, verdict)
        except ReceiptUnwritable as error:
            explain(Reason.RECEIPT_UNWRITABLE, str(error))
            raise AttemptOver(ExitCode.TRY_AGAIN, f"no receipt: {error}") from error
        await parts.broadcast.end(settled.outcome)
        return ExitCode.ANSWERED

    def _leave_to_the_next(self, verdict: Verdict) -> None:
        """Raises AttemptOver where a later attempt may succeed and the budget grants one. It goes on from
        the last checkpoint. Who asked for the run's end gets it now."""
        granted = self._held.settings.retries_left > 0 and self._parts.ownership.cancel is None
        if verdict.passes and granted and self._parts.journal.complete:
            explain(verdict.reason, verdict.message)
            raise AttemptOver(ExitCode.TRY_AGAIN, verdict.message)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _stop(task: asyncio.Future[Any]) -> None:
    """Cancel and wait, but not for ever: a node that swallows its cancellation ends with the process."""
    if task.done():
        return
    task.cancel()
    await asyncio.wait({task}, timeout=_STOP_SECONDS)
