"""Alive, ready, and the numbers: asked over HTTP as the kubelet and Prometheus do."""

from collections import Counter
from collections.abc import AsyncIterator

import aiohttp
import pytest

from treadle_operator.health import Health, HealthServer
from treadle_operator.metrics import Metrics


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(clock)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def address(health: Health, metrics: Metrics) -> AsyncIterator[str]:
    server = HealthServer(health, metrics, host="127.0.0.1", port=0)
    port = await server.start()
    yield f"http://127.0.0.1:{port}"
    await server.stop()


async def ask(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_without_trouble_it_is_alive_and_ready(address: str) -> None:
    assert await ask(f"{address}/healthz") == (200, "ok\n")
    assert await ask(f"{address}/readyz") == (200, "ok\n")


async def test_a_trouble_makes_it_unready_but_not_dead(address: str, health: Health) -> None:
    assert health.trouble("store", "Postgres does not answer")
    assert not health.trouble("store", "Postgres does not answer")
    assert await ask(f"{address}/readyz") == (503, "store: Postgres does not answer\n")
    assert (await ask(f"{address}/healthz"))[0] == 200
    assert health.trouble("store", "")
    assert (await ask(f"{address}/readyz"))[0] == 200


async def test_it_is_not_alive_once_a_key_has_waited_too_long(address: str, health: Health) -> None:
    health.oldest_key = lambda: 299.0
    assert (await ask(f"{address}/healthz"))[0] == 200
    health.oldest_key = lambda: 301.0
    assert await ask(f"{address}/healthz") == (503, "a key has waited or worked for 301 s\n")


def test_it_is_not_alive_once_the_loop_is_too_late(health: Health, clock: Clock) -> None:
    clock.now += 5
    assert health.not_alive() == []
    clock.now += 7
    assert health.not_alive() == ["the event loop is 11 s late"]


async def test_the_numbers_are_read_when_they_are_asked_for(address: str, metrics: Metrics) -> None:
    depth = 0.0
    metrics.watch(
        lambda: {"treadle_queue_depth": depth, "treadle_leader": 1.0},
        lambda: Counter({"Running": 3, "Queued": 1}),
    )
    depth = 7.0
    metrics.status_writes.labels("runs").inc()
    code, text = await ask(f"{address}/metrics")
    assert code == 200
    assert "treadle_queue_depth 7.0" in text
    assert 'treadle_runs{phase="Running"} 3.0' in text
    assert 'treadle_status_writes_total{kind="runs"} 1.0' in text
