"""The operator's own client against the real API server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from treadle_operator.kube import Kube
from treadle_operator.kube_login import Credentials


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[Kube]:
    client = Kube(Credentials(str(kubeconfig)))
    await client.open()
    yield client
    await client.close()
