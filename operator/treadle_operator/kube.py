"""The only file that speaks to the API server: plain JSON objects in and out, errors of `kube_errors`.

The official client's asynchronous half gives login and TLS. The requests are JSON built here, over a session
of ours: its typed objects cost twice the CPU of a run, its `call_api` a third more than the session that it
calls. Every call has a timeout, none is repeated here except once after a 401 (a bound token in rotation).
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from treadle_api.names import API_VERSION, FIELD_MANAGER, FINALIZER
from treadle_api.records import Json
from treadle_operator import kube_errors
from treadle_operator.kube_errors import Conflict, NotFound, Rejected
from treadle_operator.kube_login import Credentials

CALL_SECONDS: Final = 15.0
LIST_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
CONNECTIONS: Final = 16
"""Each opens with a TLS handshake, which costs both sides more than most requests do."""
KEEP_SECONDS: Final = 80.0
"""For how long an idle connection is kept: longer than the pauses between our lists."""
PAGE: Final = 500

_CRD = f"/apis/{API_VERSION}"
_PREFIX: Final[Mapping[str, str]] = {
    "agents": _CRD,
    "threads": _CRD,
    "runs": _CRD,
    "pods": "/api/v1",
    "configmaps": "/api/v1",
    "secrets": "/api/v1",
    "events": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "version": "",
}
_MANAGED: Final[Mapping[str, str]] = {"fieldManager": FIELD_MANAGER}
_JSON = "application/json"
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Kube:
    """`resource` is the plural (`runs`, `pods`, `leases`, ...). All methods raise `ClusterError`s only.

    `sent(method, resource)` is told of each request, subresource included (`runs/status`).
    """

    def __init__(
        self, credentials: Credentials, *, sent: Callable[[str, str], None] = lambda method, resource: None
    ) -> None:
        self._credentials = credentials
        self._sent = sent
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Loads the credentials; raises Unavailable where there are none."""
        await self._credentials.load()
        tls = RESTClientObject(self._credentials.configuration).ssl_context
        connector = aiohttp.TCPConnector(ssl=tls, limit=CONNECTIONS, keepalive_timeout=KEEP_SECONDS)
        # The API server is reached directly; a proxy named in the environment is for other traffic.
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, resource: str, namespace: str, name: str) -> Json:
        return await self._call("GET", resource, namespace, name)

    async def list_objects(
        self,
        resource: str,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
    ) -> AsyncIterator[Json]:
        """All objects, page by page; the items carry neither apiVersion nor kind."""
        query = {"limit": str(PAGE)}
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        while True:
            page = await self._call("GET", resource, namespace, query=query, seconds=LIST_SECONDS)
            for item in page.get("items") or ():
                yield item
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            query["continue"] = token

    async def create(self, resource: str, namespace: str, body: Json) -> Json:
        """Raises AlreadyExists; the caller then gets the object and compares."""
        return await self._call("POST", resource, namespace, query=_MANAGED, body=body)

    async def replace(self, resource: str, namespace: str, name: str, body: Json) -> Json:
        """PUT; `metadata.resourceVersion` in the body makes it a compare-and-set (Conflict)."""
        return await self._call("PUT", resource, namespace, name, query=_MANAGED, body=body)

    async def merge(self, resource: str, namespace: str, name: str, body: Json) -> Json:
        """Merge patch; `metadata.resourceVersion` in the body makes it a compare-and-set (Conflict)."""
        return await self._call(
            "PATCH", resource, namespace, name, query=_MANAGED, body=body, content_type=_MERGE_PATCH
        )

    async def replace_status(self, resource: str, seen: Json, status: Mapping[str, Any]) -> Json:
        """PUT of the whole status, only if the object is still the one that was `seen` (Conflict).

        The server takes metadata and spec of such a write from what is stored; yet who owns a label that the
        body leaves out would lose it, so metadata goes along. Not the uid: an object that is gone would then
        be told as a Conflict, and the resourceVersion keeps a late write away from a namesake anyway. A
        server-side apply would say the same, since the status is atomic, and costs the server a seventh more:
        it reads its body as YAML.
        """
        metadata = {key: value for key, value in seen["metadata"].items() if key not in _UNSENT}
        body = {
            "apiVersion": API_VERSION,
            "kind": seen.get("kind") or _KINDS[resource],
            "metadata": metadata,
            "status": dict(status),
        }
        place = metadata["namespace"], metadata["name"]
        return await self._call("PUT", resource, *place, subresource="status", query=_MANAGED, body=body)

    async def add_finalizer(self, resource: str, seen: Json) -> Json:
        """Adds ours to the object that was `seen`; Conflict where it changed since."""
        present = seen["metadata"].get("finalizers") or []
        if FINALIZER in present:
            return seen
        where = "/metadata/finalizers/-" if present else "/metadata/finalizers"
        value: Any = FINALIZER if present else [FINALIZER]
        return await self._patch_metadata(resource, seen, [{"op": "add", "path": where, "value": value}])

    async def remove_finalizer(self, resource: str, seen: Json) -> Json:
        """Takes ours, and only ours, from the object that was `seen`; Conflict where it changed since."""
        present = seen["metadata"].get("finalizers") or []
        if FINALIZER not in present:
            return seen
        where = f"/metadata/finalizers/{present.index(FINALIZER)}"
        return await self._patch_metadata(
            resource,
            seen,
            [{"op": "test", "path": where, "value": FINALIZER}, {"op": "remove", "path": where}],
        )

    async def delete(
        self, resource: str, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        """Deletes the object of this uid and no namesake (Conflict)."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self._call("DELETE", resource, namespace, name, body=options)

    async def exists(self, resource: str, namespace: str, name: str) -> bool:
        """Whether the object is there, without its contents being sent (a Secret's are nobody's business)."""
        try:
            await self._call("GET", resource, namespace, name, accept=_METADATA_ONLY)
        except NotFound:
            return False
        return True

    async def ping(self) -> None:
        """Asks for the server's version: is it there, and are we let in?"""
        await self._call("GET", "version", seconds=5.0)

    async def _patch_metadata(self, resource: str, seen: Json, operations: list[Json]) -> Json:
        metadata = seen["metadata"]
        guard = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
        try:
            return await self._call(
                "PATCH",
                resource,
                metadata["namespace"],
                metadata["name"],
                query=_MANAGED,
                body=[guard, *operations],
                content_type=_JSON_PATCH,
            )
        except Rejected as error:
            if error.status == 422:  # how the server reports a failed `test`
                raise Conflict(error.message) from error
            raise

    async def _call(
        self,
        method: str,
        resource: str,
        namespace: str | None = None,
        name: str | None = None,
        *,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        seconds: float = CALL_SECONDS,
    ) -> Json:
        self._sent(method, f"{resource}/{subresource}" if subresource else resource)
        target = _path(resource, namespace, name, subresource) + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "User-Agent": FIELD_MANAGER}
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body, separators=(",", ":")).encode()
        status, answer, answered = await self._send(method, target, headers, data, seconds)
        if status == 401:
            status, answer, answered = await self._send(
                method, target, headers, data, seconds, fresh_token=True
            )
        if status >= 300:
            raise kube_errors.from_response(status, answer, answered)
        try:
            found = json.loads(answer)
        except kube_errors.TRANSPORT_ERRORS as error:
            raise kube_errors.from_exception(error) from error
        return found if isinstance(found, dict) else {}

    async def _send(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        data: bytes | None,
        seconds: float,
        *,
        fresh_token: bool = False,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        if self._session is None:
            raise kube_errors.Unavailable("the connection to the API server is not open")
        authorization = await self._credentials.authorization(fresh=fresh_token)
        if authorization:
            headers = {**headers, "Authorization": authorization}
        configuration = self._credentials.configuration
        try:
            async with self._session.request(
                method,
                configuration.host + target,
                headers=headers,
                data=data,
                proxy=configuration.proxy,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
            ) as response:
                return response.status, await response.read(), response.headers
        except kube_errors.TRANSPORT_ERRORS as error:
            raise kube_errors.from_exception(error) from error


_UNSENT: Final = frozenset({"managedFields", "uid"})
_KINDS: Final[Mapping[str, str]] = {"agents": "Agent", "threads": "Thread", "runs": "Run"}


def _path(resource: str, namespace: str | None, name: str | None = None, subresource: str = "") -> str:
    parts = [_PREFIX[resource]]
    if namespace is not None:
        parts.append(f"namespaces/{quote(namespace, safe='')}")
    parts.append(resource)
    if name is not None:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)
