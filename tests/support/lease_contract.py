"""What the keeper and an API server must agree on about a run's Lease: the same clauses run against the test
double and, with a bound token of an agent's pod and under the chart's Lease policy, against a real one."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import Any, Protocol

import pytest

from treadle_runtime.keeper.lease import LeaseClient, LeaseGone, LeaseTaken, LeaseUnreachable
from treadle_runtime.keeper.wire import LeaseOrder

DURATION, RENEW = 40, 10
OTHER_HOLDER = "other-uid/nonce"


class LeaseWorld(Protocol):
    """One run's Lease, free, meant for pod `pod` with uid `uid`; the methods are what others do to it."""

    namespace: str
    name: str
    pod: str
    uid: str

    async def read(self) -> dict[str, Any] | None:
        """The Lease as it stands; None: there is none."""

    async def change(self, *, pod: str | None = None, holder: str | None = None, label: str = "") -> None:
        """As the operator, or somebody with its rights: another pod may take it, another holds it."""

    async def delete(self) -> None: ...

    async def create(self, *, holder: str = "") -> None:
        """Another Lease of that name for the same pod; the first one must be gone."""

    def away(self) -> AbstractAsyncContextManager[None]:
        """Inside it the API server does not answer."""


_nonces = count(1)


def client(world: LeaseWorld) -> tuple[LeaseClient, str]:
    """A keeper's client in the Lease's pod, and the holder that it stands for."""
    holder = f"{world.uid}/nonce-{next(_nonces)}"
    order = LeaseOrder(world.name, world.namespace, DURATION, RENEW)
    return LeaseClient(order, holder=holder, pod=world.pod, timeout=5), holder


async def do(call: Callable[[float], None]) -> None:
    await asyncio.to_thread(call, 1.0)


async def stands(world: LeaseWorld) -> dict[str, Any]:
    lease = await world.read()
    assert lease is not None
    return lease


async def holder_of(world: LeaseWorld) -> str:
    return str((await stands(world))["spec"].get("holderIdentity") or "")


async def a_free_lease_is_taken_renewed_and_released_and_never_deleted(world: LeaseWorld) -> None:
    before = (await stands(world))["metadata"]
    ours, holder = client(world)
    await do(ours.take)
    taken = (await stands(world))["spec"]
    assert taken["holderIdentity"] == holder
    assert taken["leaseDurationSeconds"] == DURATION
    assert taken["leaseTransitions"] == 1
    await do(ours.renew)
    renewed = (await stands(world))["spec"]
    assert renewed["renewTime"] > taken["renewTime"]
    assert renewed["acquireTime"] == taken["acquireTime"]
    await do(ours.release)
    assert await holder_of(world) == ""
    after = (await stands(world))["metadata"]
    for told in (before, after):
        told.pop("resourceVersion")
        told.pop("managedFields", None)
    assert after == before, "only the spec is ours"


async def a_lease_of_another_holder_or_for_another_pod_is_not_taken(world: LeaseWorld) -> None:
    ours, _ = client(world)
    await world.change(holder=OTHER_HOLDER)
    with pytest.raises(LeaseTaken, match=f"held by {OTHER_HOLDER}"):
        await do(ours.take)
    await world.change(pod="another-a2", holder="")
    version = (await stands(world))["metadata"]["resourceVersion"]
    with pytest.raises(LeaseTaken, match="meant for pod another-a2"):
        await do(ours.take)
    assert (await stands(world))["metadata"]["resourceVersion"] == version, "nothing was written"


async def of_many_that_take_it_at_once_one_holds_it(world: LeaseWorld) -> None:
    rivals = [client(world) for _ in range(8)]
    ended = await asyncio.gather(*(do(rival.take) for rival, _ in rivals), return_exceptions=True)
    losers = [end for end in ended if end is not None]
    assert [type(end) for end in losers] == [LeaseTaken] * (len(rivals) - 1), ended
    (winner,) = [holder for (_, holder), end in zip(rivals, ended, strict=True) if end is None]
    assert await holder_of(world) == winner


async def a_conflict_that_is_no_takeover_is_survived(world: LeaseWorld) -> None:
    ours, holder = client(world)
    await do(ours.take)
    await world.change(label="by-hand")
    await do(ours.renew)
    await do(ours.renew)
    lease = await stands(world)
    assert lease["metadata"]["labels"]["label"] == "by-hand"
    assert lease["spec"]["holderIdentity"] == holder


async def a_takeover_is_found_at_the_next_renewal_and_not_undone(world: LeaseWorld) -> None:
    ours, _ = client(world)
    await do(ours.take)
    for pod in (world.pod, "another-a2"):
        await world.change(pod=pod, holder="")
        for _ in range(2):
            with pytest.raises(LeaseTaken):
                await do(ours.renew)
        assert await holder_of(world) == ""
    with pytest.raises(LeaseTaken, match="meant for pod another-a2"):
        await do(ours.release)


async def a_successor_in_the_same_pod_keeps_what_it_took(world: LeaseWorld) -> None:
    ours, _ = client(world)
    await do(ours.take)
    await world.change(pod=world.pod, holder="")
    successor, holder = client(world)
    await do(successor.take)
    for call in (ours.renew, ours.release):
        with pytest.raises(LeaseTaken, match=f"held by {holder}"):
            await do(call)
    await do(successor.renew)
    assert await holder_of(world) == holder


async def a_deleted_lease_is_gone_and_not_made_again(world: LeaseWorld) -> None:
    ours, _ = client(world)
    await do(ours.take)
    await world.delete()
    for call in (ours.renew, ours.release):
        with pytest.raises(LeaseGone):
            await do(call)
    assert await world.read() is None


async def a_namesake_with_another_uid_is_not_the_lease_that_was_held(world: LeaseWorld) -> None:
    ours, holder = client(world)
    await do(ours.take)
    for named in ("", holder):
        await world.delete()
        await world.create(holder=named)
        namesake = await stands(world)
        for call in (ours.renew, ours.release):
            with pytest.raises(LeaseGone, match="another Lease of that name"):
                await do(call)
        assert await stands(world) == namesake, "nothing was written"


async def an_api_server_that_is_away_is_no_loss(world: LeaseWorld) -> None:
    ours, holder = client(world)
    async with world.away():
        with pytest.raises(LeaseUnreachable):
            await do(ours.take)
    await do(ours.take)
    async with world.away():
        for call in (ours.renew, ours.release):
            with pytest.raises(LeaseUnreachable):
                await do(call)
    await do(ours.renew)
    assert await holder_of(world) == holder


async def what_was_never_taken_is_neither_renewed_nor_released(world: LeaseWorld) -> None:
    ours, _ = client(world)
    before = await stands(world)
    with pytest.raises(LeaseUnreachable, match="never taken"):
        await do(ours.renew)
    await do(ours.release)
    assert await stands(world) == before


CONTRACT: tuple[Callable[[LeaseWorld], Awaitable[None]], ...] = (
    a_free_lease_is_taken_renewed_and_released_and_never_deleted,
    a_lease_of_another_holder_or_for_another_pod_is_not_taken,
    of_many_that_take_it_at_once_one_holds_it,
    a_conflict_that_is_no_takeover_is_survived,
    a_takeover_is_found_at_the_next_renewal_and_not_undone,
    a_successor_in_the_same_pod_keeps_what_it_took,
    a_deleted_lease_is_gone_and_not_made_again,
    a_namesake_with_another_uid_is_not_the_lease_that_was_held,
    an_api_server_that_is_away_is_no_loss,
    what_was_never_taken_is_neither_renewed_nor_released,
)
