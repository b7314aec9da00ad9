"""The operator on a real API server and a real store, with pods on a Node that has no kubelet."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.bare_node import BareNode
from support.cluster import Cluster
from support.operator_process import OperatorProcess
from support.operator_world import OperatorWorld
from support.stores import Store, redis_url, store, store_server
from treadle_api.names import AGENT_SERVICE_ACCOUNT
from treadle_operator.kube import Kube
from treadle_operator.kube_login import Credentials

__all__ = ["redis_url", "store", "store_server"]


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[Kube]:
    client = Kube(Credentials(str(kubeconfig)))
    await client.open()
    yield client
    await client.close()


@pytest.fixture
def environment(cluster: Cluster, namespace: str, store: Store, redis_url: str) -> dict[str, str]:
    """What an operator of this test is told."""
    return {
        "TREADLE_STORE_DSN": store.operator,
        "TREADLE_STREAM_URL": redis_url,
        "TREADLE_KUBECONFIG": str(cluster.kubeconfig),
        "TREADLE_WATCH_NAMESPACES": namespace,
        "TREADLE_NAMESPACE": namespace,
        "TREADLE_POD_NAME": "operator",
    }


@pytest.fixture
async def second_operator(
    environment: dict[str, str], world: OperatorWorld, tmp_path: Path
) -> AsyncIterator[OperatorProcess]:
    operator = OperatorProcess(environment, tmp_path / "second.log")
    yield operator
    await operator.kill()


@pytest.fixture
async def world(
    cluster: Cluster,
    kube: Kube,
    namespace: str,
    store: Store,
    environment: dict[str, str],
    tmp_path: Path,
) -> AsyncIterator[OperatorWorld]:
    node = BareNode(cluster, f"bare-{namespace}")
    await node.create()
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": AGENT_SERVICE_ACCOUNT},
    }
    await cluster.apply(account, namespace=namespace)
    operator = OperatorProcess(environment, tmp_path / "operator.log")
    agents, reader = await store.pool("agent"), await store.pool("operator")
    yield OperatorWorld(cluster, kube, namespace, store, agents, reader, node, operator)
    await operator.kill()
    for pod in [pod["metadata"]["name"] async for pod in kube.list_objects("pods", namespace)]:
        await node.removes(namespace, pod)
    for kind in ("runs", "threads"):
        async for left in kube.list_objects(kind, namespace):
            await kube.merge(kind, namespace, left["metadata"]["name"], {"metadata": {"finalizers": None}})
    await node.delete()
