"""A Kubernetes watch that stamps what it sees with this machine's wall clock.

Store, kubelet and API server of the local cluster run on the same kernel as this process, so their
timestamps and ours are of one clock.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from support.apiserver import ApiServer

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """One event: ADDED, MODIFIED or DELETED; `at` in seconds of the wall clock."""

    kind: str
    object: Object
    at: float


@dataclass
class Watch:
    """Everything that was seen: in order, and by name of the object."""

    events: list[Seen] = field(default_factory=list)
    history: dict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    _changed: dict[str | None, asyncio.Condition] = field(
        default_factory=lambda: defaultdict(asyncio.Condition)
    )
    _reader: asyncio.Task[None] | None = None
    _listeners: list[Callable[[Seen], None]] = field(default_factory=list)

    def listen(self, listener: Callable[[Seen], None]) -> None:
        """Calls `listener` with each event from now on."""
        self._listeners.append(listener)

    def ignore(self, listener: Callable[[Seen], None]) -> None:
        """Calls it no more."""
        self._listeners.remove(listener)

    async def until(
        self, name: str | None, right: Callable[[Seen], bool], what: str, *, within: float
    ) -> Seen:
        """The first event of that object (None: of any) that is `right`.

        Raises AssertionError with `what` when it is late.
        """
        told = self.events if name is None else self.history[name]

        def found() -> Seen | None:
            return next((seen for seen in told if right(seen)), None)

        try:
            async with asyncio.timeout(within), self._changed[name]:
                while (seen := found()) is None:
                    if self._reader is not None and self._reader.done():
                        raise AssertionError(f"the watch failed before: {what}") from self._reader.exception()
                    await self._changed[name].wait()
                return seen
        except TimeoutError:
            last = told[-1:] or "never seen"
            raise AssertionError(f"not within {within} s: {what}; last: {last}") from None

    def status_changes(self, name: str) -> int:
        """How often the status of that object changed since it was first seen."""
        told = [seen.object.get("status") for seen in self.history[name]]
        return sum(1 for before, after in pairwise(told) if after != before)

    async def read(self, api: ApiServer, path: str) -> None:
        """For ever: the server ends a watch now and then, and at once where we read too slowly."""
        since = ""
        try:
            while True:
                async for event in api.watch(path, since=since):
                    seen = Seen(event["type"], event["object"], time.time())
                    assert seen.kind != "ERROR", seen.object
                    since = seen.object["metadata"]["resourceVersion"]
                    await self._take(seen)
        finally:
            for name in tuple(self._changed):
                await self._wake(name)

    async def _take(self, seen: Seen) -> None:
        name = seen.object["metadata"]["name"]
        self.events.append(seen)
        self.history[name].append(seen)
        for listener in tuple(self._listeners):
            listener(seen)
        for waiting in (name, None):
            await self._wake(waiting)

    async def _wake(self, name: str | None) -> None:
        async with self._changed[name]:
            self._changed[name].notify_all()


@asynccontextmanager
async def watching(api: ApiServer, path: str) -> AsyncIterator[Watch]:
    """Watches a collection, as `/api/v1/namespaces/x/pods`; what is there already is ADDED first."""
    watch = Watch()
    reader = watch._reader = asyncio.create_task(watch.read(api, path), name=f"watch {path}")
    try:
        yield watch
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


def condition(object_: Object, type_: str) -> bool:
    """Whether that condition of its status is True."""
    conditions = object_.get("status", {}).get("conditions", [])
    return any(c["type"] == type_ and c["status"] == "True" for c in conditions)
