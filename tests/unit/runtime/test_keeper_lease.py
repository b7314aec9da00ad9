"""The Lease as the keeper holds it, against a double of the API server: the contract, which the cluster tier
runs against a real one, and what only a double can be made to answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.lease_contract import CONTRACT
from support.lease_server import LeaseServer
from treadle_runtime.keeper.lease import LeaseClient, LeaseUnreachable
from treadle_runtime.keeper.wire import LeaseOrder, WireError, decode, encode, lease_order

NAMESPACE, NAME, POD, HOLDER = "team", "run-1", "run-a1", "uid/nonce"


class DoubledWorld:
    """A LeaseWorld on the double."""

    namespace, name, pod, uid = NAMESPACE, NAME, POD, "uid"

    def __init__(self, server: LeaseServer) -> None:
        self._server = server

    async def read(self) -> dict[str, Any] | None:
        return self._server.read(self.namespace, self.name)

    async def change(self, *, pod: str | None = None, holder: str | None = None, label: str = "") -> None:
        self._server.change(self.namespace, self.name, pod=pod, holder=holder, label=label)

    async def delete(self) -> None:
        self._server.delete(self.namespace, self.name)

    async def create(self, *, holder: str = "") -> None:
        self._server.create(self.namespace, self.name, pod=self.pod, holder=holder)

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self._server.down = True
        yield
        self._server.down = False


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LeaseServer]:
    async with LeaseServer.running() as made:
        monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig(tmp_path)))
        made.create(NAMESPACE, NAME, pod=POD)
        yield made


@pytest.fixture
def client() -> LeaseClient:
    return LeaseClient(LeaseOrder(NAME, NAMESPACE, 40, 10), holder=HOLDER, pod=POD, timeout=2)


async def do(call: Callable[[float], None], now: float = 1.0) -> None:
    await asyncio.to_thread(call, now)


@pytest.mark.req("R19")
@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
async def test_the_double_and_the_keeper_keep_the_contract(
    server: LeaseServer, clause: Callable[[DoubledWorld], Any]
) -> None:
    await clause(DoubledWorld(server))


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_an_answer_that_says_nothing_about_ownership_is_no_loss(
    server: LeaseServer, client: LeaseClient, status: int
) -> None:
    await do(client.take)
    server.refuse = status
    with pytest.raises(LeaseUnreachable, match=f"HTTP {status}"):
        await do(client.renew)
    server.refuse = None
    await do(client.renew)


async def test_credentials_are_read_again_within_the_hour(
    server: LeaseServer, client: LeaseClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await do(client.take)
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    await do(client.renew, 3000.0)
    with pytest.raises(LeaseUnreachable, match="no credentials"):
        await do(client.renew, 9000.0)


def test_a_message_is_one_line_with_one_key() -> None:
    assert decode(encode({"beat": 1})) == {"beat": 1}
    for bad in (b"", b"[]", b"{}", b'{"a": 1, "b": 2}', b"\xff"):
        with pytest.raises(WireError):
            decode(bad)


@pytest.mark.parametrize("change", [{"renew": 14}, {"renew": 0}, {"name": None, "duration": "x"}])
def test_an_order_must_leave_time_for_three_renewals(change: dict[str, object]) -> None:
    good = {"name": NAME, "namespace": NAMESPACE, "duration": 40, "renew": 10}
    assert lease_order(good) == LeaseOrder(NAME, NAMESPACE, 40, 10)
    with pytest.raises(WireError):
        lease_order({**good, **change})
    with pytest.raises(WireError, match="needs name"):
        lease_order({})
