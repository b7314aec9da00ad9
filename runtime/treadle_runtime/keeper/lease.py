"""One Kubernetes Lease through pykube: take, renew, release, each one PUT with resourceVersion.

pykube's own `update()` sends PATCH, which the admission policy refuses for good reason: a PATCH carries
no resourceVersion and would overwrite a successor's hold. Blocking calls with a timeout: the guard runs
them in a thread.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final

import pykube
import requests

from treadle_api.names import ANNOTATION_POD
from treadle_runtime.keeper.wire import LeaseOrder

_VERSION: Final = "coordination.k8s.io/v1"
_REBUILD_SECONDS: Final = 3600.0
"""pykube reads the projected token once; the kubelet replaces it within the hour."""


class LeaseGone(Exception):
    """The Lease does not exist: ownership is over and the Lease is never re-created."""


class LeaseTaken(Exception):
    """Another holder, or the operator has named another pod: ownership is over."""


class LeaseUnreachable(Exception):
    """The API server gave no answer that says anything about ownership."""


class LeaseClient:
    """The Lease of one run, as held by `holder` in pod `pod`.

    `clock` is monotonic seconds; `timeout` bounds each HTTP request, in seconds.
    """

    def __init__(self, order: LeaseOrder, *, holder: str, pod: str, timeout: float = 5.0) -> None:
        self._order = order
        self._holder = holder
        self._pod = pod
        self._timeout = timeout
        self._api: pykube.HTTPClient | None = None
        self._api_built = 0.0
        self._lease: dict[str, Any] | None = None

    def take(self, now: float) -> None:
        """Read the Lease and write ourselves as holder.

        Raises LeaseTaken while another holder stands in it, LeaseGone, LeaseUnreachable.
        """
        lease = self._read(now)
        self._must_be_free_or_ours(lease)
        spec = dict(lease.get("spec") or {})
        spec["acquireTime"] = _timestamp()
        spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        self._write(now, lease, spec)

    def renew(self, now: float) -> None:
        """Write a new renewTime; on a conflict look who wrote, and go on only if we still hold it.

        A conflict may be the echo of our own PUT whose answer was lost, or a label set by hand: neither
        ends ownership. A foreign holder or another pod's annotation does.
        """
        if self._lease is None:
            raise LeaseUnreachable("never taken")
        self._write(now, self._lease, dict(self._lease["spec"]))

    def release(self, now: float) -> None:
        """Empty the holder (a released Lease is proof of release, a deleted one is not)."""
        if self._lease is None:
            return
        spec = dict(self._lease["spec"])
        spec["holderIdentity"] = ""
        self._write(now, self._lease, spec, holder="")

    def _must_be_free_or_ours(self, lease: dict[str, Any]) -> None:
        wanted = (lease["metadata"].get("annotations") or {}).get(ANNOTATION_POD, self._pod)
        if wanted != self._pod:
            raise LeaseTaken(f"the Lease is meant for pod {wanted}")
        holder = (lease.get("spec") or {}).get("holderIdentity") or ""
        if holder not in ("", self._holder):
            raise LeaseTaken(f"the Lease is held by {holder}")

    def _read(self, now: float) -> dict[str, Any]:
        return self._answer(self._client(now), "get", None)

    def _write(
        self, now: float, lease: dict[str, Any], spec: dict[str, Any], holder: str | None = None
    ) -> None:
        spec["holderIdentity"] = self._holder if holder is None else holder
        spec["leaseDurationSeconds"] = self._order.duration
        spec["renewTime"] = _timestamp()
        body = {**lease, "spec": spec}
        client = self._client(now)
        try:
            self._lease = self._answer(client, "put", json.dumps(body))
        except _Conflict:
            current = self._answer(client, "get", None)
            if current["metadata"].get("uid") != lease["metadata"].get("uid"):
                raise LeaseGone("ours was deleted, another Lease of that name stands there") from None
            self._must_be_free_or_ours(current)
            if holder is None and not (current.get("spec") or {}).get("holderIdentity"):
                raise LeaseTaken("the Lease was emptied by another hand") from None
            self._lease = self._answer(client, "put", json.dumps({**current, "spec": spec}), last=True)

    def _answer(
        self, client: pykube.HTTPClient, verb: str, body: str | None, *, last: bool = False
    ) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if body is not None:
            options = {"data": body, "headers": {"Content-Type": "application/json"}}
        try:
            response = getattr(client, verb)(
                version=_VERSION,
                namespace=self._order.namespace,
                url=f"leases/{self._order.name}",
                timeout=self._timeout,
                **options,
            )
        except requests.RequestException as error:
            raise LeaseUnreachable(type(error).__name__) from error
        if response.status_code == 404:
            raise LeaseGone(f"Lease {self._order.namespace}/{self._order.name} does not exist")
        if response.status_code == 409 and not last:
            raise _Conflict
        if response.status_code == 409:
            raise LeaseTaken("two conflicts in a row: another writer holds the Lease")
        if response.status_code == 401:
            self._api = None
        if response.status_code == 403 and verb == "put":
            self._refused(client, response.text)
        if response.status_code >= 300:
            raise LeaseUnreachable(f"HTTP {response.status_code}")
        try:
            lease: dict[str, Any] = response.json()
        except requests.JSONDecodeError as error:
            raise LeaseUnreachable("an answer that is no JSON") from error
        return lease

    def _refused(self, client: pykube.HTTPClient, text: str) -> None:
        """A refused PUT is the admission policy or a missing Role; only the Lease itself tells which."""
        self._must_be_free_or_ours(self._answer(client, "get", None))
        raise LeaseUnreachable(f"HTTP 403: {text[:200]}")

    def _client(self, now: float) -> pykube.HTTPClient:
        if self._api is None or now - self._api_built > _REBUILD_SECONDS:
            try:
                self._api = pykube.HTTPClient(pykube.KubeConfig.from_env(), timeout=self._timeout)
            except (OSError, pykube.PyKubeError) as error:
                raise LeaseUnreachable(f"no credentials: {error}") from error
            self._api.session.trust_env = False  # never through a proxy meant for the model's provider
            self._api_built = now
        return self._api


class _Conflict(Exception):
    """HTTP 409, before it is known whose write it was."""


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
