"""What wakes the operator besides the watch: full lists, the Leases, the store, nudges. Each is a loop.

A watch can miss things (Kopf's caches go stale after a gap), Redis can lose nudges, so everything is also
listed now and then; what a list tells again is no news and costs nothing further.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from treadle_api.records import RunRecord
from treadle_operator.cache import Cache, run_of_child
from treadle_operator.intake import Intake
from treadle_operator.kube import Kube
from treadle_operator.kube_errors import ClusterError
from treadle_operator.leases import LeaseBook
from treadle_operator.ledger import Ledger
from treadle_operator.selection import LIVING_PODS, OUR_PODS, RUN_LEASES, UNFINISHED_RUNS
from treadle_operator.stream import Stream
from treadle_store.errors import StoreError

RESYNC_EVERY: Final = 60.0
POLL_EVERY: Final = 15.0

_SELECTORS: Final[dict[str, dict[str, str]]] = {
    "agents": {},
    "threads": {},
    "runs": {"fields": UNFINISHED_RUNS},
    "pods": {"labels": OUR_PODS, "fields": LIVING_PODS},
}
Namespaces = Sequence[str | None]
"""The namespaces to look at; (None,) for the whole cluster."""

log = logging.getLogger(__name__)


async def forever(
    what: str, once: Callable[[], Awaitable[None]], every: float, trouble: Callable[[str], None]
) -> None:
    """Repeats `once` each `every` seconds. What fails is repeated too; `trouble` is told how it went with the
    API server ("" when it answered)."""
    while True:
        await asyncio.sleep(every)
        try:
            await once()
        except ClusterError as error:
            trouble(f"{what}: {error}")
        except StoreError as error:
            log.info("The store was not looked at", extra={"what": what, "error": str(error)})
        else:
            trouble("")


class Resync:
    """Full lists of what is watched."""

    def __init__(self, kube: Kube, cache: Cache, intake: Intake, namespaces: Namespaces) -> None:
        self._kube = kube
        self._cache = cache
        self._intake = intake
        self._namespaces = namespaces

    async def once(self) -> None:
        """Raises ClusterError."""
        for resource, selectors in _SELECTORS.items():
            before = self._cache.identities(resource)
            listed = set()
            for namespace in self._namespaces:
                async for item in self._kube.list_objects(resource, namespace, **selectors):
                    listed.add((resource, item["metadata"]["namespace"], item["metadata"]["name"]))
                    self._intake.seen(resource, item)
            for _, namespace_, name in before - listed:
                self._intake.vanished(resource, namespace_, name)


class LeaseLoop:
    def __init__(
        self,
        kube: Kube,
        book: LeaseBook,
        intake: Intake,
        namespaces: Namespaces,
        clock: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._book = book
        self._intake = intake
        self._namespaces = namespaces
        self._clock = clock

    async def once(self) -> None:
        """Raises ClusterError; a list that did not come to its end counts for nothing."""
        began = self._clock()
        leases = [
            lease
            for namespace in self._namespaces
            async for lease in self._kube.list_objects("leases", namespace, labels=RUN_LEASES)
        ]
        by_run = {run_of_child(lease): lease for lease in leases}
        for run in self._book.listed(leases, began=began):
            self._intake.lease_changed(run, by_run.get(run))


class StorePoll:
    """Every row that has not ended, or ended lately: covers lost nudges, and finds rows without an object.

    Never "changed since the last look": a commit can become visible late (01-architecture, "One pass").
    """

    def __init__(self, ledger: Ledger, cache: Cache, intake: Intake, namespaces: Namespaces) -> None:
        self._ledger = ledger
        self._cache = cache
        self._intake = intake
        self._namespaces = namespaces
        self._seen: dict[str, tuple[object, ...]] = {}

    async def once(self) -> None:
        """Raises StoreError."""
        seen: dict[str, tuple[object, ...]] = {}
        for namespace in self._namespaces:
            async for record in self._ledger.unfinished(namespace):
                seen[record.run_id] = _gist(record)
                known = self._cache.run_by_uid(record.run_id) is not None
                if known and self._seen.get(record.run_id) != seen[record.run_id]:
                    self._intake.run_changed(record.run_id)
                elif not known and not record.status.terminal:
                    self._intake.row_without_object(record.namespace, record.run_id)
        self._seen = seen


class Nudges:
    """Wake-ups over Redis, and living users granted again after Redis lost them."""

    def __init__(
        self, stream: Stream, ledger: Ledger, poll: StorePoll, intake: Intake, namespaces: Namespaces
    ) -> None:
        self._stream = stream
        self._ledger = ledger
        self._poll = poll
        self._intake = intake
        self._namespaces = namespaces

    async def listen(self) -> None:
        """For ever, in all namespaces."""
        async for nudge in self._stream.nudges([name for name in self._namespaces if name is not None]):
            if nudge.run_id is not None:
                self._intake.nudged(nudge.run_id)
                continue
            try:
                await self._poll.once()
                for namespace in self._namespaces:
                    await self._grant_again(namespace)
            except StoreError as error:
                log.warning(
                    "Nothing was granted again, the store does not answer", extra={"error": str(error)}
                )

    async def _grant_again(self, namespace: str | None) -> None:
        async for grant in self._ledger.grants(namespace):
            await self._stream.grant(
                grant.namespace, grant.thread_id, grant.log, grant.token, grant.fence_key
            )


def _gist(record: RunRecord) -> tuple[object, ...]:
    """What of a record wakes its run; times and checkpoints do not."""
    return (
        record.status,
        record.attempt,
        record.token,
        record.holder,
        record.cancel,
        record.queue_position == 0,
        record.active_run,
        record.receipt is not None,
    )
