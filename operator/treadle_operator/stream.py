"""The live wire as the operator uses it: every call may fail and nothing depends on it (P4)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Final

from treadle_api.records import FencingToken, RunRecord, ThreadID
from treadle_store.streams import Nudge, Wire, WireUnavailable

CONNECTIONS: Final = 4
"""Calls at the same time: the wire has few connections, and one call too many would count as Redis away."""

log = logging.getLogger(__name__)


class Stream:
    """`wire` None: the installation has no Redis."""

    def __init__(self, wire: Wire | None) -> None:
        self._wire = wire
        self._down = False
        self._connections = asyncio.Semaphore(CONNECTIONS)

    async def grant(
        self, namespace: str, thread_id: ThreadID, name: str, token: FencingToken, fence_key: bytes
    ) -> None:
        """Makes the attempt of `token` the only publisher of the thread's log `name`."""
        if self._wire is not None:
            await self._attempt(self._wire.grant(namespace, thread_id, name, token, fence_key))

    async def revoke(self, namespace: str, thread_id: ThreadID, token: FencingToken) -> None:
        if self._wire is not None:
            await self._attempt(self._wire.revoke(namespace, thread_id, token))

    async def end(self, record: RunRecord, outcome: str) -> None:
        """Tells readers that the operator has settled the run in its holder's place."""
        if self._wire is not None:
            await self._attempt(
                self._wire.publish_end(
                    record.namespace, record.thread_id, record.log, record.run_id, record.token, outcome
                )
            )

    async def nudges(self, namespaces: Sequence[str]) -> AsyncIterator[Nudge]:
        """Wake-ups of these namespaces, of all where none is named, for ever; none without Redis."""
        if self._wire is not None:
            async for nudge in self._wire.nudges(namespaces):
                yield nudge

    async def _attempt(self, call: Awaitable[object]) -> None:
        try:
            async with self._connections:
                await call
        except WireUnavailable as error:
            if not self._down:
                log.warning(
                    "Redis does not answer: runs go on without a live stream", extra={"error": str(error)}
                )
            self._down = True
        else:
            if self._down:
                log.info("Redis answers again")
            self._down = False
