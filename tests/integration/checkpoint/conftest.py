"""Claimed runs on a real store, as the agent's role sees them."""

import pytest

from support.claims import Claimer
from support.stores import Store
from treadle_store.pool import Connection, Pool


@pytest.fixture
async def agent_pool(store: Store) -> Pool:
    return await store.pool("agent")


@pytest.fixture
async def claimer(store: Store, agent_pool: Pool) -> Claimer:
    return Claimer(await store.pool("operator", max_size=2), agent_pool)


@pytest.fixture
async def admin(store: Store) -> Connection:
    return await store.connect("admin")
