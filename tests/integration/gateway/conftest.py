from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.claims import NAMESPACE
from support.gateway import (
    POLLING,
    READER_TOKEN,
    STRANGER_TOKEN,
    FakeAccess,
    GatewayUnderTest,
    gateway_running,
)
from support.live_runs import LiveRuns, live_runs
from support.redis_server import RedisServer
from support.stores import Store
from treadle_store.streams import open_wire


@pytest.fixture
async def redis_server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with RedisServer.running(tmp_path) as server:
        yield server


@pytest.fixture
def access() -> FakeAccess:
    access = FakeAccess()
    access.add(READER_TOKEN, "reader", NAMESPACE)
    access.add(STRANGER_TOKEN, "stranger", "elsewhere")
    return access


@pytest.fixture
async def wired(store: Store, redis_server: RedisServer) -> AsyncIterator[LiveRuns]:
    """Runs whose frames reach Redis."""
    async with open_wire(redis_server.admin_url) as wire:
        await wire.admit_reader("treadle-gateway", "reader")
        async with live_runs(store, wire, redis_server.address) as runs:
            yield runs


@pytest.fixture
async def wireless(store: Store) -> AsyncIterator[LiveRuns]:
    """Runs without any Redis."""
    async with live_runs(store) as runs:
        yield runs


@pytest.fixture
async def gateway(
    wired: LiveRuns, access: FakeAccess, redis_server: RedisServer
) -> AsyncIterator[GatewayUnderTest]:
    url = redis_server.url("treadle-gateway", "reader")
    async with gateway_running(wired.gateway_pool, access, url) as gateway:
        yield gateway


@pytest.fixture
async def polling_gateway(wireless: LiveRuns, access: FakeAccess) -> AsyncIterator[GatewayUnderTest]:
    async with gateway_running(wireless.gateway_pool, access, None, pace=POLLING) as gateway:
        yield gateway
