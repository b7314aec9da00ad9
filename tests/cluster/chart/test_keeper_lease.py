"""The keeper's Lease contract on the real API server: with a token bound to an agent's pod, under the chart's
Role and Lease policy, as the keeper has it in its pod."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from support.agent_pods import AgentPod, agent_pod, lease_body, lease_path
from support.apiserver import ApiServer
from support.gate import Gate
from support.lease_contract import CONTRACT
from treadle_api.names import ANNOTATION_POD


class RealWorld:
    """A LeaseWorld on the API server; what others do is done as the administrator."""

    def __init__(self, server: ApiServer, gate: Gate, namespace: str, pod: AgentPod) -> None:
        self._server = server
        self._gate = gate
        self._body = lease_body(f"run-of-{pod.name}", pod.name)
        self.namespace = namespace
        self.name = str(self._body["metadata"]["name"])
        self.pod = pod.name
        self.uid = pod.uid

    @property
    def _path(self) -> str:
        return lease_path(self.namespace, self.name)

    async def read(self) -> dict[str, Any] | None:
        answer = await self._server.request("GET", self._path)
        return None if answer.code == 404 else answer.agreed()

    async def change(self, *, pod: str | None = None, holder: str | None = None, label: str = "") -> None:
        metadata: dict[str, Any] = {"labels": {"label": label}} if label else {}
        if pod is not None:
            metadata["annotations"] = {ANNOTATION_POD: pod}
        patch = {"metadata": metadata, "spec": {} if holder is None else {"holderIdentity": holder}}
        kind = "application/merge-patch+json"
        (await self._server.request("PATCH", self._path, patch, content_type=kind)).agreed()

    async def delete(self) -> None:
        (await self._server.request("DELETE", self._path)).agreed()

    async def create(self, *, holder: str = "") -> None:
        body = json.loads(json.dumps(self._body))
        body["spec"]["holderIdentity"] = holder
        (await self._server.request("POST", lease_path(self.namespace), body)).agreed()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        await self._gate.shut()
        yield
        await self._gate.open()


def gate_before(kubeconfig: Path) -> Gate:
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    address = urlsplit(server)
    assert address.hostname
    assert address.port
    return Gate(address.hostname, address.port)


def keeper_config(kubeconfig: Path, gate: Gate, token: str) -> str:
    """A kubeconfig for the owner of that token, through the gate."""
    config = yaml.safe_load(kubeconfig.read_text())
    (cluster,) = config["clusters"]
    cluster["cluster"]["server"] = f"https://127.0.0.1:{gate.port}"
    (user,) = config["users"]
    user["user"] = {"token": token}
    return str(yaml.safe_dump(config))


@pytest.fixture
async def world(
    kubeconfig: Path,
    server: ApiServer,
    agent_namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[RealWorld]:
    pod = await agent_pod(server, agent_namespace)
    async with gate_before(kubeconfig) as gate:
        config = tmp_path / "keeper"
        config.write_text(keeper_config(kubeconfig, gate, pod.token))
        monkeypatch.setenv("KUBECONFIG", str(config))
        made = RealWorld(server, gate, agent_namespace, pod)
        await made.create()
        yield made


@pytest.mark.req("R19")
@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
async def test_the_api_server_and_the_keeper_keep_the_contract(
    world: RealWorld, clause: Callable[[RealWorld], Any]
) -> None:
    await clause(world)
