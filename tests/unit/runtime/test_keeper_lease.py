"""The Lease as the keeper holds it: taken, renewed and released by PUT with resourceVersion alone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from support.lease_server import LeaseServer
from treadle_runtime.keeper.lease import LeaseClient, LeaseGone, LeaseTaken, LeaseUnreachable
from treadle_runtime.keeper.wire import LeaseOrder, WireError, decode, encode, lease_order

NAMESPACE, NAME, POD, HOLDER = "team", "run-1", "run-a1", "uid/nonce"


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
async def test_a_free_lease_is_taken_renewed_and_released_and_never_deleted(
    server: LeaseServer, client: LeaseClient
) -> None:
    metadata = dict(server.leases[NAMESPACE, NAME]["metadata"])
    await do(client.take)
    taken = server.leases[NAMESPACE, NAME]["spec"]
    assert taken["holderIdentity"] == HOLDER
    assert taken["leaseDurationSeconds"] == 40
    assert taken["leaseTransitions"] == 1
    await do(client.renew)
    renewed = server.leases[NAMESPACE, NAME]["spec"]
    assert renewed["renewTime"] > taken["renewTime"]
    assert renewed["acquireTime"] == taken["acquireTime"]
    await do(client.release)
    assert server.holder(NAMESPACE, NAME) == ""
    after = dict(server.leases[NAMESPACE, NAME]["metadata"])
    assert after.pop("resourceVersion") != metadata.pop("resourceVersion")
    assert after == metadata, "only the spec is ours"


@pytest.mark.req("R19")
async def test_a_lease_of_another_holder_or_for_another_pod_is_not_taken(
    server: LeaseServer, client: LeaseClient
) -> None:
    server.create(NAMESPACE, NAME, pod=POD, holder="other/nonce")
    with pytest.raises(LeaseTaken, match="held by other/nonce"):
        await do(client.take)
    server.create(NAMESPACE, NAME, pod="run-a2")
    with pytest.raises(LeaseTaken, match="meant for pod run-a2"):
        await do(client.take)
    assert server.puts == 0


@pytest.mark.req("R19")
async def test_a_conflict_that_is_no_takeover_is_survived(server: LeaseServer, client: LeaseClient) -> None:
    await do(client.take)
    server.touch(NAMESPACE, NAME)
    await do(client.renew)
    await do(client.renew)
    assert server.leases[NAMESPACE, NAME]["metadata"]["labels"] == {"by": "hand"}


@pytest.mark.req("R19")
@pytest.mark.parametrize("next_pod", ["run-a2", POD])
async def test_a_takeover_is_found_at_the_next_renewal(
    server: LeaseServer, client: LeaseClient, next_pod: str
) -> None:
    await do(client.take)
    server.give_to(NAMESPACE, NAME, next_pod)
    with pytest.raises(LeaseTaken):
        await do(client.renew)
    with pytest.raises(LeaseTaken):
        await do(client.renew)
    assert server.holder(NAMESPACE, NAME) == ""


async def test_a_deleted_lease_is_gone_and_not_made_again(server: LeaseServer, client: LeaseClient) -> None:
    await do(client.take)
    server.delete(NAMESPACE, NAME)
    with pytest.raises(LeaseGone):
        await do(client.renew)
    assert server.leases == {}


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


async def test_an_api_server_that_is_away_is_no_loss(server: LeaseServer, client: LeaseClient) -> None:
    await do(client.take)
    server.down = True
    with pytest.raises(LeaseUnreachable):
        await do(client.renew)
    server.down = False
    await do(client.renew)


async def test_credentials_are_read_again_within_the_hour(
    server: LeaseServer, client: LeaseClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await do(client.take)
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    await do(client.renew, 3000.0)
    with pytest.raises(LeaseUnreachable, match="no credentials"):
        await do(client.renew, 9000.0)


async def test_what_was_never_taken_is_not_released(server: LeaseServer, client: LeaseClient) -> None:
    await do(client.release)
    assert server.puts == 0


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
