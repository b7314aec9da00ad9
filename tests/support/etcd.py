"""etcd behind the local cluster's API server: objects as they are stored, set back as a restored backup does.

No rule of a CRD is asked: that is how a status is lost which the API server itself would never let go.
"""

import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import yaml

from support.cluster import Cluster
from treadle_api.names import GROUP

_PKI = "/etc/kubernetes/pki"
_MANIFEST = "/etc/kubernetes/manifests/etcd.yaml"
_ADDRESS = "kubeadm.kubernetes.io/etcd.advertise-client-urls"


class Etcd:
    """By etcd's own HTTP gateway, whose keys and values are base64."""

    def __init__(self, url: str, client: aiohttp.ClientSession) -> None:
        self._url = url
        self._client = client

    async def read(self, plural: str, namespace: str, name: str) -> dict[str, Any]:
        """One of our objects as it is stored."""
        found = await self._call("range", key=_key(plural, namespace, name))
        stored: dict[str, Any] = json.loads(base64.b64decode(found["kvs"][0]["value"]))
        return stored

    async def write(self, plural: str, stored: dict[str, Any]) -> None:
        """Puts it in the place of what stands there; its metadata say where."""
        key = _key(plural, stored["metadata"]["namespace"], stored["metadata"]["name"])
        await self._call("put", key=key, value=base64.b64encode(json.dumps(stored).encode()).decode())

    async def _call(self, verb: str, **body: str) -> dict[str, Any]:
        async with self._client.post(f"{self._url}/v3/kv/{verb}", json=body) as response:
            answer: dict[str, Any] = await response.json()
            assert response.status == 200, answer
            return answer


@asynccontextmanager
async def open_etcd(cluster: Cluster) -> AsyncIterator[Etcd]:
    """etcd of the control plane's node, with the API server's certificate for it."""
    node = f"{cluster.name}-control-plane"

    async def read(path: str) -> str:
        return await cluster.run("docker", "exec", node, "cat", path)

    url = yaml.safe_load(await read(_MANIFEST))["metadata"]["annotations"][_ADDRESS]
    context = ssl.create_default_context(cadata=await read(f"{_PKI}/etcd/ca.crt"))
    with tempfile.NamedTemporaryFile() as pair:
        pair.write((await read(f"{_PKI}/apiserver-etcd-client.crt")).encode())
        pair.write((await read(f"{_PKI}/apiserver-etcd-client.key")).encode())
        pair.flush()
        context.load_cert_chain(pair.name)
    timeout = aiohttp.ClientTimeout(total=15)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        yield Etcd(url, client)


def _key(plural: str, namespace: str, name: str) -> str:
    return base64.b64encode(f"/registry/{GROUP}/{plural}/{namespace}/{name}".encode()).decode()
