"""A namespace of the installed release, and the store behind it."""

from collections.abc import AsyncIterator

import pytest

from support.cluster import Cluster
from support.e2e import Stage, open_stage
from support.release import Release


@pytest.fixture
async def stage(cluster: Cluster, treadle_release: Release, watched_namespace: str) -> AsyncIterator[Stage]:
    async with open_stage(cluster, treadle_release, watched_namespace) as opened:
        yield opened
