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
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
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
            async with asyncio.timeout(within), self._changed:
                while (seen := found()) is None:
                    if self._reader is not None and self._reader.done():
                        raise AssertionError(f"the watch ended before: {what}")
                    await self._changed.wait()
                return seen
        except TimeoutError:
            last = told[-1:] or "never seen"
            raise AssertionError(f"not within {within} s: {what}; last: {last}") from None

    async def read(self, events: AsyncIterator[dict[str, Any]]) -> None:
        try:
            async for event in events:
                seen = Seen(event["type"], event["object"], time.time())
                assert seen.kind != "ERROR", seen.object
                self.events.append(seen)
                self.history[seen.object["metadata"]["name"]].append(seen)
                for listener in self._listeners:
                    listener(seen)
                async with self._changed:
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self._changed.notify_all()


@asynccontextmanager
async def watching(api: ApiServer, path: str) -> AsyncIterator[Watch]:
    """Watches a collection, as `/api/v1/namespaces/x/pods`; what is there already is ADDED first."""
    watch = Watch()
    reader = watch._reader = asyncio.create_task(watch.read(api.watch(path)), name=f"watch {path}")
    try:
        yield watch
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


def condition(object_: Object, type_: str) -> bool:
    """Whether that condition of its status is True."""
    conditions = object_.get("status", {}).get("conditions", [])
    return any(c["type"] == type_ and c["status"] == "True" for c in conditions)
