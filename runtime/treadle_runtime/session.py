"""One attempt from its assignment to its exit code.

take the assignment -> name the Lease to the keeper -> held -> claim -> execute -> release (03-ownership,
steps 4 to 8). LangGraph and the graph are imported in a thread meanwhile: a second of work that needs neither
the store nor the Lease. So nothing that imports LangGraph is imported at the top of this module.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from treadle_api.contract import ExitCode
from treadle_api.names import lease_name
from treadle_api.records import Assignment
from treadle_api.resolved import ResolvedRun
from treadle_runtime import gathering, process
from treadle_runtime.endings import AttemptOver
from treadle_runtime.keeper.wire import LeaseOrder
from treadle_runtime.keeperlink import KeeperGone, KeeperLink
from treadle_runtime.settings import Settings
from treadle_store import agent
from treadle_store.pool import Pool, check_schema, open_pool

if TYPE_CHECKING:
    from treadle_runtime.attempt import Attempt

log = logging.getLogger(__name__)

T = TypeVar("T")

_POLL_SECONDS: Final = 0.1
_CLOSE_SECONDS: Final = 5.0


class Session:
    """`run()` once; `stop()` from a signal handler asks it to drain."""

    def __init__(self, settings: Settings, link: KeeperLink) -> None:
        self._settings = settings
        self._link = link
        self._stopping = asyncio.Event()
        self._attempt: Attempt | None = None

    def stop(self, reason: str) -> None:
        """Drain: stop before the next superstep, or at once where nothing is claimed yet."""
        self._stopping.set()
        if self._attempt is not None:
            self._attempt.stop(reason)

    async def run(self) -> ExitCode:
        """Execute the attempt. Raises Misconfigured, AttemptOver, KeeperGone, StoreError."""
        langgraph = asyncio.ensure_future(asyncio.to_thread(_import_langgraph))
        langgraph.add_done_callback(_look)
        async with _database(self._settings) as db:
            assignment = await self._while_kept(self._assignment(db))
            self._settings.failpoints.reach("after_assignment")
            config = ResolvedRun.model_validate(assignment.config)
            self._order_lease(assignment, config)
            found = asyncio.ensure_future(_find(langgraph, config.graph))
            found.add_done_callback(_look)
            nonce = await self._while_kept(self._lease())
            self._settings.failpoints.reach("after_lease")
            claim = await agent.claim_run(db, assignment.capability, self._settings.pod_uid, nonce)
            self._settings.failpoints.reach("after_claim")
            log.info("run claimed", extra={"fields": _fields(assignment)})
            await langgraph
            from treadle_runtime.attempt import Attempt, Held, mounted

            held = Held(self._settings, db, assignment, claim, config)
            async with mounted(held) as parts:
                self._attempt = Attempt(held, parts, self._link.gone)
                if self._stopping.is_set():
                    self._attempt.stop("told to stop")
                code = await self._attempt.execute(found)
        self._link.release()
        return code

    async def _assignment(self, db: Pool) -> Assignment:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.assignment_seconds
        while True:
            taken = await agent.take_assignment(db, self._settings.pod_key, self._settings.pod_uid)
            if taken is not None:
                return taken
            if loop.time() > deadline:
                raise AttemptOver(ExitCode.TRY_AGAIN, "there is no assignment for this pod")
            await asyncio.sleep(_POLL_SECONDS)

    def _order_lease(self, assignment: Assignment, config: ResolvedRun) -> None:
        self._link.order(
            LeaseOrder(
                name=lease_name(assignment.capability.run_id),
                namespace=assignment.namespace,
                duration=config.lease.duration_seconds,
                renew=config.lease.renew_seconds,
            )
        )

    async def _lease(self) -> str:
        try:
            async with asyncio.timeout(self._settings.assignment_seconds):
                return await self._link.held()
        except TimeoutError as error:
            raise AttemptOver(ExitCode.TRY_AGAIN, "the Lease was not to be had in time") from error

    async def _while_kept(self, work: Awaitable[T]) -> T:
        """The result of `work`, unless the keeper goes or we are told to stop first."""
        task = asyncio.ensure_future(work)
        gone = asyncio.create_task(self._link.gone.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise KeeperGone(self._link.reason)
            raise AttemptOver(ExitCode.TRY_AGAIN, "told to stop before the run was claimed")
        finally:
            for each in (task, gone, stopping):
                each.cancel()


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[Pool]:
    pool = await open_pool(settings.store_dsn, application=f"treadle-agent/{settings.pod_uid}", max_size=2)
    try:
        await check_schema(pool)
        yield pool
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await pool.close()


def _import_langgraph() -> None:
    """Without the garbage collector, which would go through the growing heap again and again (a tenth of the
    time) and find nothing; what was imported stays out of its sight."""
    gathering.install()
    gc.disable()
    try:
        import_module("treadle_runtime.attempt")
    finally:
        gc.freeze()
        gc.enable()
    log.info("langgraph imported", extra={"fields": {"cpu_seconds": process.cpu_seconds()}})


async def _find(langgraph: asyncio.Future[Any], reference: str) -> Any:
    """The graph, once LangGraph is there: two threads must not import the same modules at a time."""
    await langgraph
    from treadle_runtime.graphs.loading import find

    return await asyncio.to_thread(find, reference)


def _look(found: asyncio.Future[Any]) -> None:
    """An import that failed is told when the graph is needed; until then nobody asks."""
    if not found.cancelled():
        found.exception()


def _fields(assignment: Assignment) -> dict[str, object]:
    own = assignment.capability
    return {
        "run": own.run_id,
        "thread": own.thread_id,
        "attempt": assignment.attempt,
        "token": own.token,
    }
