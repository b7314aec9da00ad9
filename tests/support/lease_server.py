"""An API server that knows Leases only: GET and PUT with resourceVersion, as the keeper uses them.

The contract of lease_contract.py runs against this double and, in the cluster tier, a real API server.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import yaml

from treadle_api.names import ANNOTATION_POD

_PREFIX = "/apis/coordination.k8s.io/v1/namespaces/"
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 503: "Unavailable"}


@dataclass(slots=True)
class LeaseServer:
    """Leases by (namespace, name). `down`: connections are closed unanswered. `refuse`: answered so."""

    leases: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    down: bool = False
    refuse: int | None = None
    puts: int = 0
    port: int = 0
    _version: int = 0

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        made = cls()
        server = await asyncio.start_server(made._serve, "127.0.0.1", 0)
        made.port = server.sockets[0].getsockname()[1]
        try:
            yield made
        finally:
            server.close()

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig file that leads here."""
        path = folder / f"kubeconfig-{self.port}"
        cluster = {"name": "double", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "double", "context": {"cluster": "double", "user": "double"}}
        user = {"name": "double", "user": {"token": "of-the-test"}}
        document = {
            "clusters": [cluster],
            "contexts": [context],
            "users": [user],
            "current-context": "double",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def create(self, namespace: str, name: str, *, pod: str, holder: str = "") -> None:
        self._store(
            (namespace, name),
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": str(uuid4()),
                    "annotations": {ANNOTATION_POD: pod},
                },
                "spec": {"holderIdentity": holder},
            },
        )

    def change(
        self, namespace: str, name: str, *, pod: str | None = None, holder: str | None = None, label: str = ""
    ) -> None:
        """A write by somebody else; a `label` changes nothing about ownership."""
        lease = json.loads(json.dumps(self.leases[namespace, name]))
        if pod is not None:
            lease["metadata"]["annotations"][ANNOTATION_POD] = pod
        if holder is not None:
            lease["spec"]["holderIdentity"] = holder
        if label:
            lease["metadata"].setdefault("labels", {})["label"] = label
        self._store((namespace, name), lease)

    def give_to(self, namespace: str, name: str, pod: str) -> None:
        """What the operator does at an assignment: another pod may take it, nobody holds it."""
        self.change(namespace, name, pod=pod, holder="")

    def read(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A copy of the Lease; None: there is none."""
        lease = self.leases.get((namespace, name))
        return None if lease is None else json.loads(json.dumps(lease))

    def delete(self, namespace: str, name: str) -> None:
        del self.leases[namespace, name]

    def holder(self, namespace: str, name: str) -> str:
        return str(self.leases[namespace, name]["spec"].get("holderIdentity") or "")

    def _store(self, key: tuple[str, str], lease: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        lease["metadata"]["resourceVersion"] = str(self._version)
        self.leases[key] = lease
        return lease

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                verb, path, _ = lines[0].split(" ", 2)
                headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if self.down:
                    break
                status, answer = self._answer(verb, path, body)
                data = json.dumps(answer).encode()
                writer.write(
                    f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(data)}\r\n\r\n".encode()
                    + data
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone, as killed keepers are
        finally:
            writer.close()

    def _answer(self, verb: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if self.refuse is not None:
            return self.refuse, _status(self.refuse, "refused on request")
        namespace, _, name = path.split("?")[0].removeprefix(_PREFIX).partition("/leases/")
        current = self.leases.get((namespace, name))
        if not path.startswith(_PREFIX) or current is None:
            return 404, _status(404, f"leases {name!r} not found")
        if verb == "GET":
            return 200, current
        if verb != "PUT":
            return 405, _status(405, f"{verb} is not for the keeper")
        self.puts += 1
        sent = json.loads(body)
        if any(
            sent["metadata"].get(name) != current["metadata"][name] for name in ("resourceVersion", "uid")
        ):
            return 409, _status(409, "the object has been modified")
        return 200, self._store((namespace, name), sent)


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
