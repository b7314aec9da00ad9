"""What a pass over a Run looks at again, and what it makes follow for its Thread."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from support.factories import fresh, pod, record, world
from treadle_api.names import FINALIZER
from treadle_api.records import RunStatus
from treadle_operator.act import RunActor
from treadle_operator.act_threads import ThreadActor
from treadle_operator.cache import Cache
from treadle_operator.events import Recorder
from treadle_operator.failpoints import Failpoints
from treadle_operator.intake import ARRIVAL_PAUSE, THREAD_PAUSE, Intake
from treadle_operator.keys import Key, Kind
from treadle_operator.leases import LeaseBook
from treadle_operator.ledger import Ledger
from treadle_operator.lifecycle.actions import AddFinalizer, Admit, Assign, RunAction
from treadle_operator.lifecycle.world import RunWorld
from treadle_operator.memory import Memory
from treadle_operator.metrics import Metrics
from treadle_operator.objects import Objects
from treadle_operator.observe import RunObserver, SeenRun
from treadle_operator.observe_others import OtherObserver
from treadle_operator.reconcile import Reconciler


class Sees(RunObserver):
    def __init__(self, found: RunWorld) -> None:
        self.found = found

    async def run(self, namespace: str, name: str, *, after: SeenRun | None = None) -> SeenRun | None:
        metadata = {
            "namespace": namespace,
            "name": name,
            "uid": self.found.run.uid,
            "finalizers": [FINALIZER],
        }
        return SeenRun({"metadata": metadata}, self.found, None)


class Does(RunActor):
    def __init__(self) -> None:
        self.done: list[type[RunAction]] = []

    async def carry(self, seen: SeenRun, actions: Iterable[RunAction]) -> bool:
        self.done += [type(action) for action in actions]
        return True


def unused(kind: type[Any]) -> Any:
    return object.__new__(kind)


@pytest.mark.parametrize(
    ("found", "action", "pause"),
    [
        pytest.param(fresh(), Admit, ARRIVAL_PAUSE, id="admitted"),
        pytest.param(
            world(
                record=record(RunStatus.PENDING, attempt=0, attempts=(), queue_position=0, active_run=None)
            ),
            Assign,
            THREAD_PAUSE,
            id="assigned",
        ),
    ],
)
async def test_an_admission_waits_for_the_turn_and_a_turn_is_told_soon(
    found: RunWorld, action: type[RunAction], pause: float
) -> None:
    later: list[tuple[Key, float]] = []
    metrics, actor = Metrics(), Does()
    intake = Intake(
        Cache(),
        metrics,
        add=lambda key: None,
        add_after=lambda key, delay: later.append((key, delay)),
        clock=lambda: 0.0,
    )
    reconciler = Reconciler(
        runs=Sees(found),
        others=unused(OtherObserver),
        run_actor=actor,
        thread_actor=unused(ThreadActor),
        objects=unused(Objects),
        ledger=unused(Ledger),
        intake=intake,
        recorder=unused(Recorder),
        memory=Memory(lambda: 0.0),
        leases=LeaseBook(lambda: 0.0),
        metrics=metrics,
        failpoints=Failpoints(),
    )
    assert await reconciler(Key(Kind.RUN, found.run.namespace, found.run.name)) == 0.0
    assert action in actor.done
    assert set(later) == {(Key(Kind.THREAD, found.run.namespace, found.run.thread), pause)}


class Unfolds(RunObserver):
    """Shows one world after the other, and counts the live looks in between."""

    def __init__(self, *worlds: RunWorld) -> None:
        self.left = list(worlds)
        self.live = 0

    async def run(self, namespace: str, name: str, *, after: SeenRun | None = None) -> SeenRun | None:
        if after is not None:
            self.live += 1
            return after
        raw = {"metadata": {"namespace": namespace, "name": name, "uid": "u", "finalizers": [FINALIZER]}}
        return SeenRun(raw, self.left.pop(0), None) if self.left else None


class Writes(Does):
    async def carry(self, seen: SeenRun, actions: Iterable[RunAction]) -> bool:
        if AddFinalizer() in actions:
            seen.raw = dict(seen.raw)
        return await super().carry(seen, actions)


ARRIVES = fresh(thread=None, run=replace(fresh().run, template_agent="reviewer", finalizer=False))
ITS_TURN = world(
    record=record(RunStatus.PENDING, attempt=0, attempts=(), queue_position=0, active_run=None), pods=()
)


@pytest.mark.parametrize(
    ("worlds", "looks"),
    [
        pytest.param((ARRIVES, ITS_TURN), 0, id="written in this pass"),
        pytest.param((ITS_TURN,), 1, id="known from before"),
        pytest.param((ARRIVES, replace(ITS_TURN, pods=(pod(),))), 1, id="a pod is there"),
    ],
)
async def test_an_assignment_follows_a_live_look_or_a_write_of_the_same_pass(
    worlds: tuple[RunWorld, ...], looks: int
) -> None:
    sees, actor, metrics = Unfolds(*worlds), Writes(), Metrics()
    reconciler = Reconciler(
        runs=sees,
        others=unused(OtherObserver),
        run_actor=actor,
        thread_actor=unused(ThreadActor),
        objects=unused(Objects),
        ledger=unused(Ledger),
        intake=Intake(
            Cache(), metrics, add=lambda key: None, add_after=lambda key, delay: None, clock=lambda: 0.0
        ),
        recorder=unused(Recorder),
        memory=Memory(lambda: 0.0),
        leases=LeaseBook(lambda: 0.0),
        metrics=metrics,
        failpoints=Failpoints(),
    )
    assert await reconciler(Key(Kind.RUN, "team", "review")) is None
    assert Assign in actor.done
    assert sees.live == looks
