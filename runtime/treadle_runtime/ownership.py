"""Whether this attempt may still write, as everybody in the process is to see it."""

import asyncio
import logging
from collections.abc import Callable

from treadle_api.records import Capability
from treadle_runtime.sender import StepSender
from treadle_store import agent
from treadle_store.errors import StoreError, StoreUnavailable
from treadle_store.pool import Executor

log = logging.getLogger(__name__)


class Ownership:
    """The token's standing: confirmed by heartbeats, lost once and for all, cancelled at most once.

    `lost` is a future that gets the first StoreError that ended this attempt's right to write.
    """

    def __init__(self, db: Executor, capability: Capability) -> None:
        self.lost: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        self.cancel: str | None = None
        self._db = db
        self._capability = capability
        self._on_cancel: Callable[[str], None] | None = None

    def when_cancelled(self, callback: Callable[[str], None]) -> None:
        """Call back with the cancel's action, at once where it is known already."""
        self._on_cancel = callback
        if self.cancel is not None:
            callback(self.cancel)

    def lose(self, error: StoreError) -> None:
        if not self.lost.done():
            log.warning("ownership lost", extra={"fields": {"error": str(error)}})
            self.lost.set_result(error)

    def note_cancel(self, action: str | None) -> None:
        """Take up a cancel intent from any answer of the store."""
        if action is None or self.cancel is not None:
            return
        self.cancel = action
        log.info("cancel requested", extra={"fields": {"action": action}})
        if self._on_cancel is not None:
            self._on_cancel(action)

    async def confirm(self, sender: StepSender) -> None:
        """Ask the store whether the token is still ours. Raises StaleToken, StoreError."""
        self.note_cancel(await sender.call(lambda: agent.heartbeat(self._db, self._capability)))

    async def beat(self, sender: StepSender, seconds: float) -> None:
        """Confirm every `seconds` until cancelled: a tool that runs for an hour writes nothing."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.confirm(sender)
            except StoreUnavailable as error:
                # The next barrier or write decides; a silent store is no lost token.
                log.warning("heartbeat unanswered", extra={"fields": {"error": str(error)}})
            except StoreError as error:
                self.lose(error)
                return
