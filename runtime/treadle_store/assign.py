"""The operator's functions that lock a thread, with the agents ended that would keep them waiting.

A client that is frozen, or hostile, while its statement holds a thread's lock outlives every timeout
(03-ownership, Facts). So whoever waits for that lock has a second connection look who is in the way.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from treadle_api.records import Admission, Assigned, FencingToken, LossClass, RunStatus, RunUID, Settled
from treadle_store import runs, threads
from treadle_store.errors import translate
from treadle_store.pool import Executor, Pool
from treadle_store.statement import fetch_one
from treadle_store.threads import ThreadRow

_T = TypeVar("_T")

_PATIENCE_SECONDS: Final = 0.1
_OLD_TRANSACTION_SECONDS: Final = 30


class Assigner:
    """`assign_run`, `settle_orphan`, `admit_run`, `register_thread` and `retire_thread` that no agent can
    hold up.

    `watch` is a pool of its own: were it the same, callers that wait would leave nobody to end the blockers.
    Each call is bounded by the pool's command timeout. `patience` in seconds is what an agent's ordinary
    statement may take before its session is ended.
    """

    def __init__(self, db: Pool, watch: Pool, *, patience: float = _PATIENCE_SECONDS) -> None:
        self._db = db
        self._watch = watch
        self._patience = patience

    async def assign_run(
        self,
        *,
        run_id: RunUID,
        attempt: int,
        expected_token: FencingToken,
        pod: str,
        loss: LossClass | None = None,
        reason: str | None = None,
        node: str | None = None,
    ) -> Assigned | None:
        """See `runs.assign_run`."""
        return await self._unblocked(
            lambda db: runs.assign_run(
                db,
                run_id=run_id,
                attempt=attempt,
                expected_token=expected_token,
                pod=pod,
                loss=loss,
                reason=reason,
                node=node,
            )
        )

    async def settle_orphan(
        self, *, run_id: RunUID, expected_token: FencingToken, outcome: RunStatus, reason: str, message: str
    ) -> Settled | None:
        """See `runs.settle_orphan`."""
        return await self._unblocked(
            lambda db: runs.settle_orphan(
                db,
                run_id=run_id,
                expected_token=expected_token,
                outcome=outcome,
                reason=reason,
                message=message,
            )
        )

    async def admit_run(self, admission: Admission) -> runs.AdmitResult:
        """See `runs.admit_run`."""
        return await self._unblocked(lambda db: runs.admit_run(db, admission))

    async def register_thread(
        self,
        namespace: str,
        thread_key: str,
        name: str,
        uid: str,
        agent: str,
        *,
        max_queued: int = 100,
        adopt: bool = False,
    ) -> ThreadRow:
        """See `threads.register_thread`."""
        return await self._unblocked(
            lambda db: threads.register_thread(
                db, namespace, thread_key, name, uid, agent, max_queued=max_queued, adopt=adopt
            )
        )

    async def retire_thread(self, namespace: str, thread_key: str, uid: str | None = None) -> bool:
        """See `threads.retire_thread`."""
        return await self._unblocked(lambda db: threads.retire_thread(db, namespace, thread_key, uid))

    async def end_old_transactions(self, seconds: int = _OLD_TRANSACTION_SECONDS) -> int:
        """Ends agent transactions older than `seconds`; how many there were. To be called now and then."""
        row = await fetch_one(self._watch, "SELECT treadle.end_old_transactions($1) AS ended", seconds)
        return 0 if row is None else int(row["ended"])

    async def _unblocked(self, call: Callable[[Executor], Awaitable[_T]]) -> _T:
        try:
            connection = await self._db.acquire()
        except Exception as error:
            raise translate(error) from error
        try:
            return await self._watched(connection.get_server_pid(), asyncio.ensure_future(call(connection)))
        finally:
            await self._db.release(connection)

    async def _watched(self, pid: int, answer: "asyncio.Future[_T]") -> _T:
        try:
            while not (await asyncio.wait({answer}, timeout=self._patience))[0]:
                await fetch_one(self._watch, "SELECT treadle.end_blockers($1)", pid)
            return answer.result()
        finally:
            if not answer.done():
                answer.cancel()
                await asyncio.wait({answer})
