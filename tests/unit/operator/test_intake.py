"""What was seen becomes keys; what we did ourselves does not."""

import asyncio
from typing import Any

import pytest

from support.virtual_time import run_virtual
from treadle_api.names import FINALIZER, LABEL_RUN
from treadle_operator.cache import Cache
from treadle_operator.intake import ARRIVAL_PAUSE, NUDGE_BURST, NUDGE_PAUSE, THREAD_PAUSE, Intake
from treadle_operator.keys import Key, Kind
from treadle_operator.metrics import Metrics
from treadle_operator.workqueue import WorkQueue


class Desk:
    """An intake with what it would put into the queue."""

    def __init__(self) -> None:
        self.now = 100.0
        self.added: list[Key] = []
        self.later: list[tuple[Key, float]] = []
        self.cache = Cache()
        self.intake = Intake(
            self.cache,
            Metrics(),
            add=self.added.append,
            add_after=lambda key, delay: self.later.append((key, delay)),
            clock=lambda: self.now,
        )

    def take(self) -> set[str]:
        taken = {str(key) for key in self.added}
        self.added.clear()
        return taken


@pytest.fixture
def desk() -> Desk:
    return Desk()


def run(version: int, name: str = "r", phase: str | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": f"u-{name}",
            "resourceVersion": str(version),
            **metadata,
        },
        "spec": {"threadRef": {"name": "t"}},
        "status": {"phase": phase} if phase else {},
    }


def pod(version: int, phase: str = "Pending", ip: str = "") -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ns",
            "name": "r-a1",
            "uid": "p",
            "resourceVersion": str(version),
            "labels": {LABEL_RUN: "u-r"},
            "ownerReferences": [{"kind": "Run", "name": "r", "uid": "u-r"}],
        },
        "spec": {"containers": [{}]},
        "status": {"phase": phase, "podIP": ip},
    }


def lease(holder: str) -> dict[str, Any]:
    owner = {"kind": "Run", "name": "r", "uid": "u-r"}
    return {
        "metadata": {"namespace": "ns", "name": "run-u-r", "ownerReferences": [owner]},
        "spec": {"holderIdentity": holder},
    }


def other(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}}


def test_a_new_run_wakes_itself_and_its_thread(desk: Desk) -> None:
    desk.intake.seen("runs", run(1))
    assert desk.take() == {"runs/ns/r"}
    assert [str(key) for key, _ in desk.later] == ["threads/ns/t"]


def test_a_thread_is_looked_at_sooner_for_a_turn_than_for_an_arrival(desk: Desk) -> None:
    thread = Key(Kind.THREAD, "ns", "t")
    desk.intake.seen("runs", run(1))
    desk.intake.run_arrived("ns", "t")
    desk.intake.thread_changed("ns", "t")
    desk.intake.seen("runs", run(1), gone=True)
    assert desk.later == [
        (thread, ARRIVAL_PAUSE),
        (thread, ARRIVAL_PAUSE),
        (thread, THREAD_PAUSE),
        (thread, THREAD_PAUSE),
    ]


def test_arrival_and_turn_of_a_run_cost_its_thread_one_look() -> None:
    async def main() -> None:
        looks: list[float] = []
        loop = asyncio.get_running_loop()

        async def look(key: Key) -> None:
            if key.kind is Kind.THREAD:
                looks.append(loop.time())

        queue: WorkQueue[Key] = WorkQueue(look)
        intake = Intake(Cache(), Metrics(), add=queue.add, add_after=queue.add_after, clock=loop.time)
        queue.start()
        intake.seen("runs", run(1))
        await asyncio.sleep(3)
        intake.run_arrived("ns", "t")
        turned = loop.time()
        intake.thread_changed("ns", "t")
        await asyncio.sleep(60)
        assert looks == [turned + THREAD_PAUSE]

    run_virtual(main())


def test_the_echo_of_our_own_write_wakes_nobody(desk: Desk) -> None:
    desk.intake.seen("runs", run(1))
    desk.take()
    desk.cache.put("runs", run(2, phase="Starting"))
    desk.intake.seen("runs", run(2, phase="Starting"))
    assert desk.take() == set()


def test_a_pod_wakes_its_run_only_when_a_decision_could_change(desk: Desk) -> None:
    desk.intake.seen("pods", pod(1))
    assert desk.take() == {"runs/ns/r"}
    desk.intake.seen("pods", pod(2, ip="10.0.0.1"))
    assert desk.take() == set()
    desk.intake.seen("pods", pod(3, phase="Running"))
    assert desk.take() == set()
    desk.intake.seen("pods", pod(4, phase="Failed"))
    assert desk.take() == {"runs/ns/r"}


def test_a_pod_that_goes_wakes_a_run_that_is_known_and_no_other(desk: Desk) -> None:
    desk.intake.seen("pods", pod(1))
    assert desk.take() == {"runs/ns/r"}
    desk.intake.seen("pods", pod(2), gone=True)
    assert desk.take() == set()
    desk.intake.seen("runs", run(1))
    desk.intake.seen("pods", pod(3))
    desk.take()
    desk.intake.seen("pods", pod(4), gone=True)
    assert desk.take() == {"runs/ns/r"}


def test_a_lease_that_tells_what_is_shown_already_wakes_nobody(desk: Desk) -> None:
    claimed = run(1, phase="Running")
    claimed["status"]["ownership"] = {"holder": "p/1"}
    desk.intake.seen("runs", claimed)
    desk.take()
    desk.intake.lease_changed("u-r", lease("p/1"))
    assert desk.take() == set()
    for changed in (lease("p/2"), lease(""), None):
        desk.intake.lease_changed("u-r", changed)
        assert desk.take() == {"runs/ns/r"}


def test_the_lease_of_a_run_that_nobody_knows_has_the_run_looked_at(desk: Desk) -> None:
    desk.intake.lease_changed("u-r", lease("p/1"))
    assert desk.take() == {"runs/ns/r"}
    desk.intake.lease_changed("u-r", None)
    assert desk.take() == set()


def test_a_run_that_left_the_watch_because_it_ended_needs_no_further_look(desk: Desk) -> None:
    desk.intake.seen("runs", run(1))
    desk.cache.put("runs", run(2, phase="Succeeded"))
    desk.take()
    desk.intake.seen("runs", run(2, phase="Running"), gone=True)
    assert desk.take() == set()


def test_a_run_that_somebody_else_ended_is_looked_at(desk: Desk) -> None:
    desk.cache.put("runs", run(2, phase="Running", finalizers=[FINALIZER]))
    desk.intake.seen("runs", run(3, phase="Running", finalizers=[FINALIZER]), gone=True)
    assert "runs/ns/r" in desk.take()


def test_a_run_that_we_ended_ourselves_is_kept_and_not_read_again(desk: Desk) -> None:
    desk.cache.put("runs", run(2, phase="Succeeded", finalizers=[FINALIZER]))
    desk.intake.seen("runs", run(2, phase="Running"), gone=True)
    assert desk.cache.get("runs", "ns", "r") is not None
    assert desk.take() == set()
    assert desk.later == []


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(run(3, phase="Succeeded"), id="it was deleted after we ended it"),
        pytest.param({**run(2), "metadata": {**run(2)["metadata"], "uid": "namesake"}}, id="a namesake"),
    ],
)
def test_a_run_that_is_gone_after_its_end_is_looked_for(desk: Desk, gone: dict[str, Any]) -> None:
    desk.cache.put("runs", run(2, phase="Succeeded", finalizers=[FINALIZER]))
    desk.intake.seen("runs", gone, gone=True)
    assert desk.cache.get("runs", "ns", "r") is None
    assert desk.take() == {"runs/ns/r"}


def test_a_run_that_ended_and_that_no_list_has_is_forgotten_and_looked_at(desk: Desk) -> None:
    desk.cache.put("runs", run(2, phase="Succeeded", finalizers=[FINALIZER]))
    desk.intake.vanished("runs", "ns", "r")
    assert desk.cache.get("runs", "ns", "r") is None
    assert desk.take() == {"runs/ns/r"}


def test_a_new_thread_or_agent_wakes_the_runs_that_may_have_waited_for_it(desk: Desk) -> None:
    desk.cache.put("runs", run(1, "waiting", phase="Pending"))
    desk.cache.put("runs", run(2, "busy", phase="Running"))
    desk.intake.seen("agents", other("a"))
    assert desk.take() == {"agents/ns/a", "runs/ns/waiting"}
    desk.intake.seen("threads", other("t"))
    assert desk.take() == {"threads/ns/t", "runs/ns/waiting", "runs/ns/busy"}


def test_what_a_full_list_no_longer_has_is_forgotten_and_looked_at(desk: Desk) -> None:
    desk.cache.put("runs", run(1))
    desk.intake.vanished("runs", "ns", "r")
    assert "runs/ns/r" in desk.take()
    assert desk.cache.get("runs", "ns", "r") is None
    desk.intake.vanished("runs", "ns", "r")
    assert desk.take() == set()


def test_a_short_attempt_is_heard_at_once_when_it_claims_and_when_it_settles(desk: Desk) -> None:
    desk.cache.put("runs", run(1))
    key = Key(Kind.RUN, "ns", "r")
    for _ in range(NUDGE_BURST):
        desk.intake.nudged("u-r")
    assert desk.later == [(key, pytest.approx(0.0, abs=1e-9))] * NUDGE_BURST
    desk.intake.nudged("u-r")
    assert desk.later[-1] == (key, pytest.approx(NUDGE_PAUSE))


def test_nudges_for_one_run_cannot_hurry_the_operator(desk: Desk) -> None:
    desk.cache.put("runs", run(1))
    seconds = 4
    planned = set()
    for tick in range(seconds * 100):
        desk.now = tick / 100
        desk.intake.nudged("u-r")
        _, wait = desk.later[-1]
        planned.add(round(desk.now + wait, 3))
    earliest = [at for at in sorted(planned) if at <= seconds]
    assert len(earliest) <= NUDGE_BURST + seconds / NUDGE_PAUSE


def test_a_flood_of_nudges_does_not_make_the_next_one_late(desk: Desk) -> None:
    desk.cache.put("runs", run(1))
    for _ in range(1000):
        desk.intake.nudged("u-r")
    desk.now += 2 * NUDGE_PAUSE
    desk.intake.nudged("u-r")
    assert desk.later[-1][1] <= NUDGE_PAUSE


def test_a_nudge_for_a_run_we_do_not_know_is_ignored(desk: Desk) -> None:
    desk.intake.nudged("somebody-elses")
    assert desk.later == []
