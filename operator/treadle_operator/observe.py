"""Gathers what one pass over a Run may know: Kubernetes first, Postgres last, the reverse of the writing.

A pod that has ended, seen before a record without a receipt, surely left none. Cached objects serve until a
decision could not be taken back (an assignment, a pod, a settlement): then `after` asks for a second, live
look at exactly the objects concerned.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from treadle_api.agent import Agent
from treadle_api.names import lease_name, pod_name
from treadle_api.reasons import Reason
from treadle_api.records import Json, RunRecord, RunUID
from treadle_api.run import Run
from treadle_operator.cache import Cache
from treadle_operator.clock import StoreClock
from treadle_operator.kube import Kube
from treadle_operator.kube_errors import NotFound
from treadle_operator.leases import LeaseBook
from treadle_operator.ledger import STORE_AWAY, Ledger
from treadle_operator.lifecycle.resolve import prepare, references
from treadle_operator.lifecycle.world import (
    AgentFacts,
    LeaseView,
    PodView,
    Prepared,
    Problem,
    RunObject,
    RunWorld,
    ThreadObject,
)
from treadle_operator.memory import Memory
from treadle_operator.objects import Objects
from treadle_operator.views import lease_view, owned_by, pod_view, run_object, thread_object

IMAGE_PULL_GRACE = 300


@dataclass(slots=True)
class SeenRun:
    """A Run as it was seen. `raw` moves on when an action writes to it, so that a later write can follow."""

    raw: Json
    world: RunWorld
    agent: Json | None


class RunObserver:
    def __init__(
        self,
        kube: Kube,
        objects: Objects,
        ledger: Ledger,
        *,
        cache: Cache,
        leases: LeaseBook,
        memory: Memory,
        clock: StoreClock,
    ) -> None:
        self._kube = kube
        self._objects = objects
        self._ledger = ledger
        self._cache = cache
        self._leases = leases
        self._memory = memory
        self._clock = clock

    async def run(self, namespace: str, name: str, *, after: SeenRun | None = None) -> SeenRun | None:
        """None: there is no such Run. `after`: the look that this live one confirms."""
        raw = await self._objects.get("runs", namespace, name, live=after is not None)
        if raw is None:
            return None
        run = run_object(raw)
        seen_for = self._aging(run.uid)
        attempt = max(self._memory.attempt(run.uid), int(run.status.get("attempt") or 0))
        while True:
            unread = self._unread_pods(run, attempt, live=after is not None)
            early = await self._record(run) if unread and after is None else None
            ended = early is not None and early[0] is not None and early[0].status.terminal
            for pod in () if ended else unread:
                await self._objects.get("pods", run.namespace, pod, live=True)
            if after is not None and attempt > 0:
                await self._look_at_lease(run)
            pods = self._pods(run, seen_for)
            lease = self._lease(run, seen_for)
            thread = await self._thread(run)
            agent = await self._agent(run, thread)
            record, store_down_for = early if early is not None and ended else await self._record(run)
            if record is None or record.attempt <= attempt:
                break
            attempt = record.attempt  # we had not looked at its pod: look again, in the right order
            self._memory.assigned(run.uid, attempt)
        prepared: Prepared | Problem | None = None
        if record is None and store_down_for is None and thread is not None and agent is not None:
            prepared = await self._prepare(raw, agent)
        state = (record.status, record.attempt) if record is not None else None
        world = RunWorld(
            run=run,
            now=self._clock.now(),
            seen_for=seen_for("seen", True),
            thread=thread,
            agent=_agent_facts(agent),
            prepared=prepared,
            pods=pods,
            lease=lease,
            record=record,
            record_for=seen_for("record", state) if store_down_for is None else 0.0,
            store_down_for=store_down_for,
            store_failed_over=self._ledger.failed_over,
            deleting_for=seen_for("deleting", True) if run.deleting else 0.0,
            refused=self._memory.refused(run.uid),
        )
        return SeenRun(raw, world, agent)

    def _aging(self, uid: str) -> Callable[[str, object], float]:
        return lambda slot, value: self._memory.seen_for(uid, slot, value)

    def _unread_pods(self, run: RunObject, attempt: int, *, live: bool) -> list[str]:
        """The pods that could exist and have to be read. Ended ones leave the watch, so the current attempt's
        is read where it is not known, unless the store says that the run has ended: then it does not matter
        how its pod ended. A live look also reads those we know, and the next attempt's. The first attempt's
        is not looked for: no rule asks for it before that, and its creation finds one that is there."""
        known = {pod["metadata"]["name"] for pod in self._cache.pods_of_run(run.uid)}
        current = {pod_name(run.name, attempt)} if attempt > 0 and not run.finished else set()
        following = {pod_name(run.name, attempt + 1)} if attempt > 0 else set()
        return sorted(known | current | following if live else current - known)

    async def _look_at_lease(self, run: RunObject) -> None:
        try:
            self._leases.seen(await self._kube.get("leases", run.namespace, lease_name(run.uid)))
        except NotFound:
            self._leases.forget(run.uid)

    def _pods(self, run: RunObject, seen_for: Callable[[str, object], float]) -> tuple[PodView, ...]:
        owned = [raw for raw in self._cache.pods_of_run(run.uid) if owned_by(raw, run.uid)]
        views = (pod_view(raw, seen_for) for raw in owned)
        return tuple(sorted(views, key=lambda pod: pod.attempt))

    def _lease(self, run: RunObject, seen_for: Callable[[str, object], float]) -> LeaseView:
        found = self._leases.of_run(run.uid)
        return lease_view(found, seen_for("lease", found is not None))

    async def _thread(self, run: RunObject) -> ThreadObject | None:
        """A Thread that we do not know, and that the Run would have us create, is not looked for at the Run's
        first pass: its creation finds one that is there. Once anything was written to the Run, it is (the
        status that the CRD gives to a new Run has no phase)."""
        if run.template_agent is not None and not run.finalizer and "phase" not in run.status:
            raw = self._cache.get("threads", run.namespace, run.thread)
        else:
            raw = await self._objects.get("threads", run.namespace, run.thread) if run.thread else None
        return thread_object(raw) if raw is not None else None

    async def _agent(self, run: RunObject, thread: ThreadObject | None) -> Json | None:
        """The thread's Agent; the template's while there is no thread; at last the one it began with."""
        began_with = (run.status.get("agent") or {}).get("name")
        name = thread.agent if thread is not None else run.template_agent or began_with
        return await self._objects.get("agents", run.namespace, name) if name else None

    async def _record(self, run: RunObject) -> tuple[RunRecord | None, float | None]:
        try:
            return await self._ledger.record(RunUID(run.uid)), None
        except STORE_AWAY:
            return None, self._ledger.down_for()

    async def _prepare(self, raw: Json, agent: Json) -> Prepared | Problem:
        try:
            run, model = Run.model_validate(raw), Agent.model_validate(agent)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            told = f"{where}: {first['msg']} (the CRDs and this operator are of different versions)"
            return Problem(Reason.CONFIGURATION_INVALID, told)
        wanted = references(run.spec, model.spec)
        contents = await self._objects.contents(run.metadata.namespace, wanted)
        return prepare(run.spec, model.spec, contents)


def _agent_facts(raw: Json | None) -> AgentFacts | None:
    if raw is None:
        return None
    metadata, grace = raw["metadata"], (raw.get("spec") or {}).get("imagePullGraceSeconds")
    return AgentFacts(
        name=metadata["name"],
        generation=int(metadata.get("generation") or 0),
        image_pull_grace_seconds=int(grace) if grace is not None else IMAGE_PULL_GRACE,
    )
