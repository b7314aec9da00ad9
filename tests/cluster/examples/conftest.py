"""kubectl and our plug-in, in a namespace of the installed release."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.e2e import EXAMPLES, Stage, open_stage
from support.plugin import Plugin, install
from support.release import Release


@pytest.fixture
async def stage(cluster: Cluster, treadle_release: Release, watched_namespace: str) -> AsyncIterator[Stage]:
    async with open_stage(cluster, treadle_release, watched_namespace) as opened:
        yield opened


@pytest.fixture
def plugin(cluster: Cluster, watched_namespace: str, tmp_path: Path) -> Plugin:
    """Works in a folder that looks like the checkout, so that downloads stay out of that."""
    install(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    return Plugin(cluster, watched_namespace, tmp_path)
