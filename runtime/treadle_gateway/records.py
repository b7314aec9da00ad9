"""What the gateway reads from the store, each call bounded in time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from treadle_api.records import ManifestEntry, Receipt, RunUID, StoredEvent
from treadle_store.errors import StoreUnavailable
from treadle_store.events import list_events
from treadle_store.pool import Pool, check_schema
from treadle_store.receipts import read_receipt
from treadle_store.run_views import RunView, find_run, view_run
from treadle_store.workspace import read_artifact

CALL_SECONDS: Final = 10.0
"""Longest wait for one answer of the store, the wait for a free connection included."""


class Records:
    """The durable record. Every method raises StoreError and ends within `CALL_SECONDS`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def check(self) -> None:
        """Raises SchemaMismatch where the database is older than this program."""
        async with _bounded():
            await check_schema(self._pool)

    async def find(self, namespace: str, run: str) -> RunView | None:
        async with _bounded():
            return await find_run(self._pool, namespace, run)

    async def view(self, run_id: RunUID) -> RunView | None:
        async with _bounded():
            return await view_run(self._pool, run_id)

    async def events(
        self,
        run: RunView,
        *,
        after_seq: int,
        limit: int,
        types: list[str] | None = None,
        task_id: str | None = None,
    ) -> list[StoredEvent]:
        async with _bounded():
            return await list_events(
                self._pool,
                run.thread_id,
                after_seq=after_seq,
                run_id=run.run_id,
                types=types,
                task_id=task_id,
                limit=limit,
            )

    async def receipt(self, run_id: RunUID) -> Receipt | None:
        async with _bounded():
            return await read_receipt(self._pool, run_id)

    async def artifact(self, run_id: RunUID, path: str) -> tuple[ManifestEntry, bytes] | None:
        async with _bounded():
            return await read_artifact(self._pool, run_id, path)


@asynccontextmanager
async def _bounded() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(CALL_SECONDS):
            yield
    except TimeoutError as error:
        raise StoreUnavailable("the store did not answer in time", maybe_committed=False) from error
