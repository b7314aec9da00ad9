"""One operator works at a time, by a Lease of its own; two at once would be wasteful, never wrong.

15 s duration, renewed every 2 s, given up after 10 s without a successful renewal (client-go's figures). A
candidate judges expiry by its own monotonic clock since it last saw the Lease change.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from treadle_api.records import Json
from treadle_operator.kube import Kube
from treadle_operator.kube_errors import AlreadyExists, ClusterError, Conflict, NotFound

DURATION: Final = 15
RENEW_WITHIN: Final = 10.0
EVERY: Final = 2.0

log = logging.getLogger(__name__)


class LeadershipLost(Exception):
    """Another operator leads, or renewal failed for too long: this process must end."""


class Elector:
    """`acquire`, then `hold` in a task of its own until it raises or is cancelled, then `release`."""

    def __init__(
        self, kube: Kube, *, namespace: str, name: str, identity: str, clock: Callable[[], float]
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._clock = clock
        self._held: Json | None = None
        self._seen: tuple[str, float] = ("", 0.0)  # resourceVersion, since when we see it
        self._renewed_at = 0.0

    @property
    def leading(self) -> bool:
        return self._held is not None and self._clock() - self._renewed_at < DURATION

    async def acquire(self) -> None:
        """Returns once this process leads. Errors of the API server are logged and repeated."""
        told = ""
        while True:
            try:
                holder = await self._try()
            except ClusterError as error:
                log.warning("The leader Lease could not be read or taken", extra={"error": str(error)})
            else:
                if holder == self.identity:
                    log.info("This operator leads", extra={"identity": self.identity})
                    return
                if holder != told:
                    log.info("Another operator leads, waiting", extra={"leader": holder})
                    told = holder
            await asyncio.sleep(EVERY)

    async def hold(self) -> None:
        """Renews for ever. Raises LeadershipLost."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                async with asyncio.timeout(RENEW_WITHIN):
                    holder = await self._try()
            except (ClusterError, TimeoutError) as error:
                log.warning("The leader Lease could not be renewed", extra={"error": str(error)})
            else:
                if holder != self.identity:
                    self._held = None
                    raise LeadershipLost(f"{holder or 'nobody'} holds the leader Lease")
            if self._clock() - self._renewed_at > RENEW_WITHIN:
                self._held = None
                raise LeadershipLost(f"no renewal succeeded for {RENEW_WITHIN:.0f} s")

    async def release(self) -> None:
        """Empties the holder, so that a successor need not wait. Failing is no harm: it expires."""
        if self._held is None:
            return
        body = self._body(self._held, holder="", began=None)
        self._held = None
        try:
            await self._kube.replace("leases", self._namespace, self._name, body)
        except ClusterError as error:
            log.info("The leader Lease was not released and will expire", extra={"error": str(error)})

    async def _try(self) -> str:
        """One step; the identity of who holds the Lease afterwards."""
        started = self._clock()
        try:
            lease = await self._kube.get("leases", self._namespace, self._name)
        except NotFound:
            return await self._create(started)
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if holder != self.identity and holder and not self._expired(lease):
            return holder
        began = spec.get("acquireTime") if holder == self.identity else None
        return await self._write(lease, began, started)

    def _expired(self, lease: Json) -> bool:
        version = lease["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, self._clock())
        duration = (lease.get("spec") or {}).get("leaseDurationSeconds") or DURATION
        return self._clock() - self._seen[1] > float(duration)

    async def _create(self, started: float) -> str:
        body: Json = {"metadata": {"name": self._name, "namespace": self._namespace}}
        try:
            self._held = await self._kube.create(
                "leases", self._namespace, self._body(body, holder=self.identity, began=None)
            )
        except AlreadyExists:
            return ""
        self._renewed_at = started
        return self.identity

    async def _write(self, lease: Json, began: str | None, started: float) -> str:
        try:
            self._held = await self._kube.replace(
                "leases", self._namespace, self._name, self._body(lease, holder=self.identity, began=began)
            )
        except Conflict:
            return ""  # somebody was quicker; the next step reads who
        self._renewed_at = started
        return self.identity

    def _body(self, lease: Json, *, holder: str, began: str | None) -> Json:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = lease.get("spec") or {}
        changed = spec.get("holderIdentity") != holder
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                key: lease["metadata"][key]
                for key in ("name", "namespace", "resourceVersion")
                if key in lease["metadata"]
            },
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION,
                "acquireTime": began or now,
                "renewTime": now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (1 if changed and holder else 0),
            },
        }
