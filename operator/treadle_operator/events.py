"""Kubernetes Events: the story that `kubectl describe` tells. Hints, sent in the background, bounded, lossy.

An Event's name is a digest of (object uid, reason, message), so the same sentence said again raises a count
instead of adding an object, whoever says it.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from treadle_api.names import API_VERSION, COMPONENT, bounded
from treadle_api.records import Json
from treadle_operator.kube import Kube
from treadle_operator.kube_errors import AlreadyExists, ClusterError

QUEUE_LIMIT: Final = 1000
MESSAGE_LIMIT: Final = 1024
"""Characters; the API server refuses more."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Told:
    """One thing to tell about one object."""

    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str


class Recorder:
    def __init__(self, kube: Kube, *, identity: str, dropped: Callable[[], None]) -> None:
        self._kube = kube
        self._identity = bounded(identity, 128)
        self._dropped = dropped
        self._queue: asyncio.Queue[Told] = asyncio.Queue(QUEUE_LIMIT)

    def tell(self, told: Told) -> None:
        """Never waits: with the queue full the Event is dropped and counted."""
        try:
            self._queue.put_nowait(told)
        except asyncio.QueueFull:
            self._dropped()

    async def run(self) -> None:
        """Sends what is told, one at a time, for ever. A refused Event is dropped and counted."""
        while True:
            told = await self._queue.get()
            try:
                await self._send(told)
            except ClusterError as error:
                self._dropped()
                log.debug("An Event was not sent", extra={"reason": told.reason, "error": str(error)})
            finally:
                self._queue.task_done()

    async def drain(self, seconds: float) -> None:
        """Waits for what was told, at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._queue.join()
        except TimeoutError:
            log.debug("Events were left unsent", extra={"left": self._queue.qsize()})

    async def _send(self, told: Told) -> None:
        body = event_body(told, identity=self._identity, now=datetime.now(UTC))
        try:
            await self._kube.create("events", told.namespace, body)
        except AlreadyExists:
            known = await self._kube.get("events", told.namespace, body["metadata"]["name"])
            again = {"count": int(known.get("count") or 1) + 1, "lastTimestamp": body["lastTimestamp"]}
            await self._kube.merge("events", told.namespace, body["metadata"]["name"], again)


def event_body(told: Told, *, identity: str, now: datetime) -> Json:
    """A core/v1 Event; `now` with a time zone."""
    said = f"{told.uid}\0{told.type}\0{told.reason}\0{told.message}"
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    time = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = told.message
    if len(message) > MESSAGE_LIMIT:
        message = message[: MESSAGE_LIMIT - 1] + "…"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{bounded(told.name, 200)}.{digest}", "namespace": told.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": told.kind,
            "namespace": told.namespace,
            "name": told.name,
            "uid": told.uid,
        },
        "type": told.type,
        "reason": told.reason,
        "message": message,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": identity,
    }
