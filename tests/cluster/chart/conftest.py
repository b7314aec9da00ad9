"""A namespace that is ready for agents, and that no operator watches."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from support.apiserver import ApiServer, open_apiserver
from support.cluster import Cluster
from support.release import Release


@pytest.fixture
async def server(kubeconfig: Path) -> AsyncIterator[ApiServer]:
    async with open_apiserver(kubeconfig) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def agent_namespace(cluster: Cluster, treadle_release: Release) -> AsyncIterator[str]:
    """Shared by the tests of this folder: each makes pods and Leases of its own."""
    name = f"agents-{secrets.token_hex(4)}"
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    await cluster.kubectl("create", "namespace", name)
    await cluster.kubectl("label", "namespace", name, restricted)
    await treadle_release.admit(name)
    yield name
    await cluster.kubectl("delete", "namespace", name, "--wait=false")
