"""The store as the operator uses it: thin calls to `treadle_store`, and whether it answers at all.

The store may be away, or of an older schema, when the operator starts and later on. Every call then raises
one of STORE_AWAY, the passes say so in what they show, and `run` keeps looking until the cause is gone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from treadle_api.names import COMPONENT
from treadle_api.records import (
    Admission,
    AdmitFile,
    Assigned,
    RunRecord,
    RunUID,
    Settled,
    ThreadID,
)
from treadle_operator.clock import StoreClock
from treadle_operator.lifecycle.actions import Admit, Assign, SettleOrphan
from treadle_operator.lifecycle.world import ActiveRun, Head, LastRun, RunObject, ThreadFacts, ThreadObject
from treadle_store import overview, runs
from treadle_store.assign import Assigner
from treadle_store.errors import SchemaMismatch, StoreError, StoreFailedOver, StoreUnavailable
from treadle_store.pool import Pool, check_schema, open_pool

STORE_AWAY: Final = (StoreUnavailable, StoreFailedOver, SchemaMismatch)
LOOK_EVERY: Final = 5.0
PAGE: Final = 500

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Store:
    """What is open once the store was reached."""

    pool: Pool
    watch: Pool
    assigner: Assigner


class Ledger:
    """`trouble(sentence)` is told why the store cannot be used, "" once it can. `clock` takes its time."""

    def __init__(
        self,
        dsn: str,
        *,
        connections: int,
        clock: StoreClock,
        monotonic: Callable[[], float],
        trouble: Callable[[str], bool],
    ) -> None:
        self._dsn = dsn
        self._connections = connections
        self._clock = clock
        self._monotonic = monotonic
        self._trouble = trouble
        self._store: _Store | None = None
        self._opening = asyncio.Lock()
        self._checked = False
        self._looked = asyncio.Event()
        self._mismatch: SchemaMismatch | None = None
        self._failed_over: StoreFailedOver | None = None
        self._down_since: float | None = monotonic()

    @property
    def schema_problem(self) -> str:
        """What `check_schema` said against the schema, with the command that mends it; empty: it is known."""
        return str(self._mismatch) if self._mismatch is not None else ""

    @property
    def failed_over(self) -> bool:
        """Whether the store refuses to be written until its threads are fenced (03-ownership, "failover")."""
        return self._failed_over is not None

    def down_for(self) -> float | None:
        """Seconds since the store stopped answering; None: it answered last."""
        return None if self._down_since is None else self._monotonic() - self._down_since

    async def run(self) -> None:
        """Connects, then looks every few seconds whether the store is there, for ever."""
        while True:
            try:
                await self.look()
            except StoreError as error:
                if self._trouble(str(error)):
                    log.warning("The store cannot be used", extra={"error": str(error)})
            else:
                if self._trouble(""):
                    log.info("The store answers")
            self._looked.set()
            await asyncio.sleep(LOOK_EVERY)

    async def looked(self) -> None:
        """Returns once `run` has looked for the first time, whatever it found."""
        await self._looked.wait()

    async def look(self) -> None:
        """Opens the pool where there is none, checks the schema, reads the clock. Raises StoreError."""
        await self._answer(self._look)

    async def close(self) -> None:
        if self._store is not None:
            self._store.pool.terminate()
            self._store.watch.terminate()

    async def record(self, run_id: RunUID) -> RunRecord | None:
        return (await self._call(lambda store: runs.read_runs(store.pool, [run_id]))).get(run_id)

    async def unfinished(self, namespace: str | None) -> AsyncIterator[RunRecord]:
        """Every run that has not ended or ended lately."""
        after: RunUID | None = None

        def following(store: _Store) -> Awaitable[Sequence[RunRecord]]:
            return runs.list_unfinished(store.pool, namespace=namespace, after=after, limit=PAGE)

        while True:
            page = await self._call(following)
            for record in page:
                yield record
            if len(page) < PAGE:
                return
            after = page[-1].run_id

    async def thread(self, thread: ThreadObject) -> ThreadFacts | None:
        """None where the Thread is not registered (or a namesake before it was)."""
        row = await self._call(
            lambda store: overview.view_thread(store.pool, thread.namespace, thread.thread_key)
        )
        if row is None or row.retired or row.uid != thread.uid:
            return None
        return _facts(row)

    async def register(self, thread: ThreadObject, *, adopt: bool) -> ThreadID:
        """Raises StoreRejected (ThreadIDConflict)."""
        row = await self._call(
            lambda store: store.assigner.register_thread(
                thread.namespace,
                thread.thread_key,
                thread.name,
                thread.uid,
                thread.agent,
                max_queued=thread.max_queued_runs,
                adopt=adopt,
            )
        )
        return row.thread_id

    async def retire(self, namespace: str, thread_key: str, uid: str) -> bool:
        return await self._call(lambda store: store.assigner.retire_thread(namespace, thread_key, uid))

    async def admit(self, run: RunObject, thread_id: ThreadID, action: Admit) -> str:
        """What `admit_run` answered: admitted, exists, thread_not_found or queue_full."""
        prepared = action.prepared
        admission = Admission(
            run_id=RunUID(run.uid),
            namespace=run.namespace,
            name=run.name,
            thread_id=thread_id,
            spec_hash=prepared.spec_hash,
            input=prepared.input,
            config=prepared.config,
            object_created=action.object_created,
            files=[AdmitFile(path=file.path, data=file.data) for file in prepared.files],
        )
        return (await self._call(lambda store: store.assigner.admit_run(admission))).result

    async def assign(self, run_id: RunUID, action: Assign) -> Assigned | None:
        """None: the world was not as it was observed."""
        return await self._call(
            lambda store: store.assigner.assign_run(
                run_id=run_id,
                attempt=action.attempt,
                expected_token=action.expected_token,
                pod=action.pod,
                loss=action.loss,
                reason=action.reason,
            )
        )

    async def request_cancel(self, run_id: RunUID, action: str, reason: str) -> None:
        await self._call(lambda store: runs.request_cancel(store.pool, run_id, action, reason))

    async def settle_orphan(self, run_id: RunUID, action: SettleOrphan) -> Settled | None:
        """None: the world was not as it was observed."""
        return await self._call(
            lambda store: store.assigner.settle_orphan(
                run_id=run_id,
                expected_token=action.expected_token,
                outcome=action.outcome,
                reason=action.reason,
                message=action.message,
            )
        )

    async def grants(self, namespace: str | None) -> AsyncIterator[overview.Grant]:
        """The authority of every living assignment."""
        after: ThreadID | None = None

        def following(store: _Store) -> Awaitable[Sequence[overview.Grant]]:
            return overview.living_grants(store.pool, namespace=namespace, after=after, limit=PAGE)

        while True:
            page = await self._call(following)
            for grant in page:
                yield grant
            if len(page) < PAGE:
                return
            after = page[-1].thread_id

    async def _look(self, store: _Store) -> None:
        try:
            await check_schema(store.pool)
        except SchemaMismatch as mismatch:
            self._mismatch = mismatch
            raise
        self._mismatch, self._checked = None, True
        await runs.confirm_incarnation(store.pool)
        self._failed_over = None
        self._clock.read(await overview.read_clock(store.pool))
        ended = await store.assigner.end_old_transactions()
        if ended:
            log.warning("Old transactions of agents were ended", extra={"count": ended})

    async def _call(self, function: Callable[[_Store], Awaitable[T]]) -> T:
        """One call, once the schema is known to be ours. Raises StoreError."""
        if self._mismatch is not None:
            raise SchemaMismatch(self._mismatch.have, self._mismatch.want)
        if self._failed_over is not None:
            # Tables can be read all the same; but what was read there must not be acted upon.
            raise StoreFailedOver(str(self._failed_over))
        if not self._checked:
            raise StoreUnavailable("the store has not been reached yet", maybe_committed=False)
        return await self._answer(function)

    async def _answer(self, function: Callable[[_Store], Awaitable[T]]) -> T:
        """Runs one call and remembers whether the store answered. Raises StoreError."""
        try:
            answer = await function(await self._opened())
        except STORE_AWAY as error:
            if isinstance(error, StoreFailedOver):
                self._failed_over = error
            if self._down_since is None:
                self._down_since = self._monotonic()
            raise
        self._down_since = None
        return answer

    async def _opened(self) -> _Store:
        if self._store is None:
            async with self._opening:
                if self._store is None:
                    self._store = await self._open()
        return self._store

    async def _open(self) -> _Store:
        pool = await open_pool(self._dsn, application=COMPONENT, max_size=self._connections)
        try:
            watch = await open_pool(self._dsn, application=f"{COMPONENT}-watch", max_size=2)
        except StoreError:
            pool.terminate()
            raise
        return _Store(pool, watch, Assigner(pool, watch))


def _facts(row: overview.ThreadOverview) -> ThreadFacts:
    active = head = last = None
    if row.active_run is not None and row.active_name is not None:
        active = ActiveRun(name=row.active_name, uid=row.active_run, attempt=row.active_attempt or 0)
    if row.checkpoint_id is not None and row.checkpoint_step is not None:
        head = Head(checkpoint_id=row.checkpoint_id, step=row.checkpoint_step)
    if row.last_name is not None and row.last_status is not None and row.last_ended is not None:
        last = LastRun(name=row.last_name, outcome=row.last_status.value, time=row.last_ended)
    return ThreadFacts(
        thread_id=row.thread_id,
        fencing_token=row.fencing_token,
        active=active,
        queued=row.queued,
        head=head,
        last=last,
    )
