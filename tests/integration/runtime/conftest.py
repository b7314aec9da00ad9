"""Keeper and agent as real processes against real stores and a Lease server of the test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.agent_process import Harness
from support.lease_server import LeaseServer
from support.stores import Store
from treadle_store.streams import open_wire


@pytest.fixture
async def leases() -> AsyncIterator[LeaseServer]:
    async with LeaseServer.running() as server:
        yield server


@pytest.fixture
async def harness(
    store: Store, leases: LeaseServer, redis_url: str, namespace: str, tmp_path: Path
) -> AsyncIterator[Harness]:
    async with open_wire(redis_url) as wire:
        made = Harness(
            await store.pool("operator"),
            store,
            await store.connect("admin"),
            leases,
            tmp_path,
            namespace,
            wire,
            redis_url,
        )
        try:
            yield made
        finally:
            await made.close()
