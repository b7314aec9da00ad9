"""What one plain status write costs on this machine: the unit in which the CPU goals of a Run were set.

The goals come from a study on another machine, whose unit was this write: server-side apply of a phase and
three conditions to a custom resource without rules, by JSON over aiohttp. There it cost the API server 3.7 ms
of CPU and its client 0.3 ms; measured here in the same run, it says what the goals are here.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.cpu import Spent, spent
from bench.watching import Object
from support.apiserver import ApiServer
from support.cluster import Cluster
from support.kinds import serve

STUDY_APISERVER = 3.7
STUDY_CLIENT = 0.3
"""Milliseconds of CPU for one write, where the goals were set."""

_GROUP = "bench.treadle.dev"
WRITES = 400
_OBJECTS = 16


@dataclass(frozen=True)
class Yardstick:
    """Objects of a kind that exists for this only."""

    cluster: Cluster
    api: ApiServer
    path: str

    async def write(self) -> Spent:
        """`WRITES` statuses, those of one object one after the other."""
        return await spent(
            self.cluster, os.getpid(), lambda: asyncio.gather(*(self._write(n) for n in range(_OBJECTS)))
        )

    async def _write(self, number: int) -> None:
        where = f"{self.path}/{number}/status?force=true"
        for write in range(WRITES // _OBJECTS):
            body = _object(number) | {"status": _status(write)}
            answer = await self.api.request("PATCH", where, body, content_type="application/apply-patch+yaml")
            answer.agreed()


@asynccontextmanager
async def standing(cluster: Cluster, api: ApiServer, namespace: str) -> AsyncIterator[Yardstick]:
    """The kind and its objects; both go at the end."""
    try:
        await serve(cluster, "--filename", "-", stdin=json.dumps(_definition()))
        path = f"/apis/{_GROUP}/v1/namespaces/{namespace}/yardsticks"
        for number in range(_OBJECTS):
            (await api.request("POST", path, _object(number))).agreed()
        yield Yardstick(cluster, api, path)
    finally:
        await cluster.kubectl("delete", f"crd/yardsticks.{_GROUP}", "--ignore-not-found")


def _object(number: int) -> Object:
    return {"apiVersion": f"{_GROUP}/v1", "kind": "Yardstick", "metadata": {"name": str(number)}}


def _status(write: int) -> Object:
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": "Written",
            "message": f"This is write {write}",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 1,
        }
        for type_ in ("Admitted", "Owned", "Reconciling")
    ]
    return {"phase": f"Phase{write}", "conditions": conditions}


def _definition() -> Object:
    text = {"type": "string", "maxLength": 512}
    fields = dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"), text)
    condition = {
        "type": "object",
        "required": ["type"],
        "properties": {**fields, "observedGeneration": {"type": "integer", "format": "int64"}},
    }
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    conditions = {"type": "array", "maxItems": 16, "items": condition, **keyed}
    status = {"type": "object", "properties": {"phase": text, "conditions": conditions}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"status": status}}},
    }
    names = {"plural": "yardsticks", "singular": "yardstick", "kind": "Yardstick"}
    spec = {"group": _GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"yardsticks.{_GROUP}"},
        "spec": spec,
    }
