"""The leader Lease on a real API server."""

import asyncio

import pytest

from support.eventually import eventually
from treadle_operator.kube import Kube
from treadle_operator.leader import Elector, LeadershipLost


class Clock:
    """Monotonic time that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def elector(kube: Kube, namespace: str, identity: str, clock: Clock) -> Elector:
    return Elector(kube, namespace=namespace, name="leader", identity=identity, clock=clock)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle_operator.leader.EVERY", 0.05)


async def test_of_two_candidates_one_leads_until_it_releases(kube: Kube, namespace: str) -> None:
    clock = Clock()
    one, two = (elector(kube, namespace, name, clock) for name in ("one", "two"))
    await one.acquire()
    second = asyncio.create_task(two.acquire())
    done, _ = await asyncio.wait({second}, timeout=0.5)
    assert not done
    assert one.leading
    assert not two.leading
    await one.release()
    await asyncio.wait_for(second, 5)
    assert two.leading
    assert not one.leading


async def test_a_dead_leader_is_followed_once_its_lease_has_not_changed_for_its_duration(
    kube: Kube, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "treadle_operator.leader")
    clock = Clock()
    await elector(kube, namespace, "dead", clock).acquire()
    heir = elector(kube, namespace, "heir", clock)
    waiting = asyncio.create_task(heir.acquire())

    async def seen() -> bool:
        return "Another operator leads, waiting" in caplog.messages

    # Its wait begins with its first sight of the Lease: time that passes before does not count.
    await eventually(seen, "the heir has seen the Lease")
    assert not waiting.done()
    clock.now += 14
    done, _ = await asyncio.wait({waiting}, timeout=0.5)
    assert not done
    clock.now += 2
    await asyncio.wait_for(waiting, 5)
    spec = (await kube.get("leases", namespace, "leader"))["spec"]
    assert spec["holderIdentity"] == "heir"
    assert spec["leaseTransitions"] == 2


async def test_a_leader_whose_lease_was_taken_stops(kube: Kube, namespace: str) -> None:
    clock = Clock()
    leader = elector(kube, namespace, "leader", clock)
    await leader.acquire()
    await kube.merge("leases", namespace, "leader", {"spec": {"holderIdentity": "thief"}})
    with pytest.raises(LeadershipLost, match="thief"):
        await asyncio.wait_for(leader.hold(), 5)
    assert not leader.leading


async def test_a_leader_that_cannot_renew_stops_before_its_lease_runs_out(kube: Kube, namespace: str) -> None:
    clock = Clock()
    leader = elector(kube, namespace, "leader", clock)
    await leader.acquire()
    await kube.close()  # every further call fails as it does without a network
    holding = asyncio.create_task(leader.hold())
    clock.now += 9
    done, _ = await asyncio.wait({holding}, timeout=0.3)
    assert not done
    clock.now += 2
    with pytest.raises(LeadershipLost, match="no renewal succeeded"):
        await asyncio.wait_for(holding, 5)
