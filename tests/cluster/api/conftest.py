"""Our kinds on the cluster's API server: as they are, and under a group that no operator watches."""

import asyncio
import fcntl
import json
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from support.apiserver import ApiServer, open_apiserver
from support.cluster import Cluster
from support.kinds import serve
from support.unwatched import unwatched
from treadle_api.crdgen import KINDS, definition


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def unwatched_kinds(cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster, while it serves our kinds under a group that no operator watches too.

    Pytest's processes share them: whoever leaves last takes them away.
    """
    items = [unwatched(definition(model)) for model in KINDS]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    with (Path(tempfile.gettempdir()) / f"treadle-cases-{os.getuid()}.lock").open("w") as users:
        await asyncio.to_thread(fcntl.flock, users, fcntl.LOCK_SH)
        await serve(cluster, "--filename", "-", stdin=listed)
        yield cluster
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        await cluster.kubectl("delete", "--filename", "-", "--ignore-not-found", stdin=listed)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cases_namespace(unwatched_kinds: Cluster) -> AsyncIterator[str]:
    """One namespace for all stored cases; each has a name of its own."""
    name = f"api-cases-{secrets.token_hex(4)}"
    await unwatched_kinds.kubectl("create", "namespace", name)
    yield name
    await unwatched_kinds.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
async def server(cluster: Cluster) -> AsyncIterator[ApiServer]:
    async with open_apiserver(cluster.kubeconfig) as server:
        yield server
