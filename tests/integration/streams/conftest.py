from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.redis_server import RedisServer
from treadle_store.streams import Wire, open_wire


@pytest.fixture
async def redis_server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with RedisServer.running(tmp_path) as server:
        yield server


@pytest.fixture
async def wire(redis_server: RedisServer) -> AsyncIterator[Wire]:
    async with open_wire(redis_server.admin_url) as wire:
        yield wire
