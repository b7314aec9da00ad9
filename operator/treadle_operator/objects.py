"""Objects of the API server through the cache: remembered where that does, read live where it must be."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from treadle_api.meta import KeyRef
from treadle_api.records import Json
from treadle_operator.cache import Cache, uid
from treadle_operator.kube import Kube
from treadle_operator.kube_errors import NotFound, Rejected
from treadle_operator.lifecycle.world import ThreadObject
from treadle_operator.views import instant


class Objects:
    def __init__(self, kube: Kube, cache: Cache) -> None:
        self._kube = kube
        self._cache = cache

    async def get(self, resource: str, namespace: str, name: str, *, live: bool = False) -> Json | None:
        """The object, None where there is none. A live look corrects the cache."""
        known = self._cache.get(resource, namespace, name)
        if known is not None and not live:
            return known
        try:
            found = await self._kube.get(resource, namespace, name)
        except NotFound:
            self._cache.forget((resource, namespace, name))
            return None
        self._cache.put(resource, found)
        return self._cache.get(resource, namespace, name)

    async def create(self, resource: str, namespace: str, body: Json) -> Json:
        """Raises AlreadyExists."""
        return self._keep(resource, await self._kube.create(resource, namespace, body))

    async def add_finalizer(self, resource: str, seen: Json) -> Json:
        """The object as it is afterwards. Raises Conflict where it is no longer as it was seen."""
        return self._keep(resource, await self._kube.add_finalizer(resource, seen))

    async def remove_finalizer(self, resource: str, seen: Json) -> Json:
        """The object as it is afterwards; as it was where it has gone meanwhile. Raises Conflict."""
        try:
            return self._keep(resource, await self._kube.remove_finalizer(resource, seen))
        except NotFound:
            self.forget(resource, seen)
            return seen

    async def write_status(self, resource: str, seen: Json, status: Mapping[str, Any]) -> Json:
        """The object as it is afterwards. Raises Conflict, NotFound."""
        return self._keep(resource, await self._kube.replace_status(resource, seen, status))

    def threads_with_key(self, thread: ThreadObject) -> list[Json]:
        """Other Threads of the namespace with the same threadID, oldest first."""
        others = [
            raw
            for raw in self._cache.threads_with_key(thread.namespace, thread.thread_key)
            if uid(raw) != thread.uid
        ]
        return sorted(others, key=lambda raw: (instant(raw["metadata"].get("creationTimestamp")), uid(raw)))

    def forget(self, resource: str, known: Json) -> None:
        metadata = known["metadata"]
        self._cache.forget((resource, metadata["namespace"], metadata["name"]))

    def forget_run(self, run: Json) -> None:
        """The Run and its pods."""
        self.forget("runs", run)
        for pod in self._cache.pods_of_run(uid(run)):
            self.forget("pods", pod)

    def _keep(self, resource: str, written: Json) -> Json:
        self._cache.put(resource, written)
        return written

    async def contents(
        self, namespace: str, references: Iterable[KeyRef]
    ) -> dict[tuple[str, str], str | bytes]:
        """What the named ConfigMap keys hold, read live; what does not exist is left out."""
        wanted = list(references)
        found: dict[tuple[str, str], str | bytes] = {}
        for name in dict.fromkeys(ref.name for ref in wanted):
            try:
                config_map = await self._kube.get("configmaps", namespace, name)
            except NotFound:
                continue
            for ref in (ref for ref in wanted if ref.name == name):
                value = _value(config_map, ref.key)
                if value is not None:
                    found[name, ref.key] = value
        return found

    async def missing_secrets(self, namespace: str, names: Iterable[str]) -> tuple[str, ...]:
        """Those that do not exist. Where the operator may not look, it says nothing."""
        missing = []
        for name in names:
            try:
                if not await self._kube.exists("secrets", namespace, name):
                    missing.append(name)
            except Rejected:
                return ()
        return tuple(missing)


def _value(config_map: Json, key: str) -> str | bytes | None:
    text = (config_map.get("data") or {}).get(key)
    if text is not None:
        return str(text)
    encoded = (config_map.get("binaryData") or {}).get(key)
    if encoded is None:
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return None
