"""What a pass over a Run asks the API server for, and what it does not need to ask."""

from typing import Any

import pytest

from support.factories import record
from treadle_api.names import FINALIZER, LABEL_ATTEMPT, LABEL_RUN
from treadle_api.records import Json, RunRecord, RunStatus, RunUID
from treadle_operator.cache import Cache
from treadle_operator.clock import StoreClock
from treadle_operator.kube import Kube
from treadle_operator.kube_errors import NotFound
from treadle_operator.leases import LeaseBook
from treadle_operator.ledger import Ledger
from treadle_operator.lifecycle.actions import AddFinalizer, CreateThread
from treadle_operator.lifecycle.run import decided_by
from treadle_operator.memory import Memory
from treadle_operator.objects import Objects
from treadle_operator.observe import RunObserver


class Server(Kube):
    """Holds objects and remembers what it was asked for."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.asked: list[str] = []

    async def get(self, resource: str, namespace: str, name: str) -> Json:
        self.asked.append(f"{resource}/{name}")
        if (resource, name) not in self.objects:
            raise NotFound("there is none")
        return self.objects[resource, name]


class OneRecord(Ledger):
    def __init__(self) -> None:
        self.held: RunRecord | None = None

    @property
    def failed_over(self) -> bool:
        return False

    async def record(self, run_id: RunUID) -> RunRecord | None:
        return self.held


class Desk:
    """An observer with its server, its store and its cache. Time stands still."""

    def __init__(self) -> None:
        self.server, self.ledger, self.cache = Server(), OneRecord(), Cache()
        self.observer = RunObserver(
            self.server,
            Objects(self.server, self.cache),
            self.ledger,
            cache=self.cache,
            leases=LeaseBook(lambda: 0.0),
            memory=Memory(lambda: 0.0),
            clock=StoreClock(lambda: 0.0),
        )

    def exists(self, resource: str, obj: Json, *, cached: bool = True) -> None:
        self.server.objects[resource, obj["metadata"]["name"]] = obj
        if cached:
            self.cache.put(resource, obj)

    def asked(self) -> list[str]:
        asked, self.server.asked = self.server.asked, []
        return asked


def obj(name: str, uid: str = "", **more: Any) -> Json:
    metadata = {"namespace": "team", "name": name, "uid": uid or name, "resourceVersion": "1"}
    return {"metadata": metadata, **more}


def run(*, finalizer: bool = True, template: bool = False, phase: str = "") -> Json:
    spec: Json = {"threadRef": {"name": "sales"}}
    if template:
        spec["threadTemplate"] = {"agentRef": {"name": "reviewer"}}
    found = obj("r", "run-uid", spec=spec, status={"phase": phase} if phase else {})
    found["metadata"]["finalizers"] = [FINALIZER] if finalizer else []
    return found


def thread() -> Json:
    return obj("sales", "thread-uid", spec={"agentRef": {"name": "reviewer"}})


def pod(attempt: int) -> Json:
    found = obj(f"r-a{attempt}", status={"phase": "Running"})
    found["metadata"]["labels"] = {LABEL_RUN: "run-uid", LABEL_ATTEMPT: str(attempt)}
    found["metadata"]["ownerReferences"] = [{"kind": "Run", "name": "r", "uid": "run-uid"}]
    return found


def admitted(desk: Desk) -> None:
    desk.exists("runs", run())
    desk.exists("threads", thread())
    desk.exists("agents", obj("reviewer"))


async def test_before_the_first_pod_only_the_run_is_read_again() -> None:
    desk = Desk()
    admitted(desk)
    desk.ledger.held = record(RunStatus.PENDING, attempt=0, attempts=(), queue_position=0)
    seen = await desk.observer.run("team", "r")
    assert desk.asked() == []
    await desk.observer.run("team", "r", after=seen)
    assert desk.asked() == ["runs/r"]


async def test_before_a_second_pod_all_that_may_be_left_of_the_first_is_read() -> None:
    desk = Desk()
    admitted(desk)
    desk.exists("pods", pod(1))
    desk.ledger.held = record(RunStatus.RUNNING, attempt=1)
    seen = await desk.observer.run("team", "r")
    assert desk.asked() == []
    await desk.observer.run("team", "r", after=seen)
    assert desk.asked() == ["runs/r", "pods/r-a1", "pods/r-a2", "leases/run-run-uid"]


async def test_an_attempt_that_the_store_knows_and_we_do_not_is_looked_for_before_it_is_judged() -> None:
    desk = Desk()
    admitted(desk)
    desk.exists("pods", pod(1), cached=False)
    desk.ledger.held = record(RunStatus.RUNNING, attempt=1)
    seen = await desk.observer.run("team", "r")
    assert seen is not None
    assert desk.asked() == ["pods/r-a1"]
    assert [found.attempt for found in seen.world.pods] == [1]


async def test_how_the_pod_of_an_ended_run_ended_is_not_asked() -> None:
    desk = Desk()
    admitted(desk)
    desk.exists("pods", pod(1), cached=False)
    desk.ledger.held = record(RunStatus.SUCCESS, attempt=1)
    seen = await desk.observer.run("team", "r")
    assert seen is not None
    assert seen.world.record is desk.ledger.held
    assert desk.asked() == []


async def test_a_thread_that_the_run_brings_is_created_without_being_looked_for() -> None:
    desk = Desk()
    new = run(finalizer=False, template=True) | {"status": {"observedGeneration": -1}}  # as the CRD makes it
    desk.exists("runs", new)
    desk.exists("agents", obj("reviewer"))
    seen = await desk.observer.run("team", "r")
    assert seen is not None
    assert desk.asked() == []
    assert decided_by(seen.world)[1].actions == (AddFinalizer(), CreateThread("sales", "reviewer"))


@pytest.mark.parametrize(
    "touched",
    [
        pytest.param(run(template=True), id="our finalizer is there"),
        pytest.param(run(finalizer=False, template=True, phase="Pending"), id="a status is shown"),
        pytest.param(run(finalizer=False), id="it brings no thread"),
    ],
)
async def test_a_thread_that_the_watch_has_not_told_is_looked_for(touched: Json) -> None:
    desk = Desk()
    desk.exists("runs", touched)
    desk.exists("threads", thread(), cached=False)
    desk.exists("agents", obj("reviewer"))
    seen = await desk.observer.run("team", "r")
    assert seen is not None
    assert seen.world.thread is not None
    assert desk.asked() == ["threads/sales"]
