"""Our kinds on the cluster's API server, as they stand in `crds/`."""

from pathlib import Path

import pytest_asyncio

from support.cluster import Cluster
from treadle_api.crdgen import KINDS

CRDS = Path(__file__).parents[2] / "crds"
FILES = tuple(str(CRDS / f"{model.kind.plural}.yaml") for model in KINDS)


async def serve(cluster: Cluster, *words: str, stdin: str | None = None) -> None:
    """Applies definitions and waits until the API server serves their kinds."""
    await cluster.kubectl("apply", "--server-side", "--force-conflicts", *words, stdin=stdin)
    await cluster.kubectl("wait", "--for=condition=Established", *words, "--timeout=60s", stdin=stdin)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def installed(cluster: Cluster) -> Cluster:
    """The cluster, once it serves our kinds."""
    await serve(cluster, *(word for file in FILES for word in ("--filename", file)))
    return cluster
