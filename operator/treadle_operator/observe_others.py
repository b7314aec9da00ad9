"""Gathers what one pass over a Thread or an Agent may know."""

from dataclasses import dataclass

from pydantic import ValidationError

from treadle_api.agent import Agent
from treadle_api.names import FINALIZER, STORE_SECRET
from treadle_api.reasons import Reason
from treadle_api.records import Json
from treadle_api.resolved import ResolvedRun
from treadle_operator.cache import Cache, finished, uid
from treadle_operator.clock import StoreClock
from treadle_operator.ledger import STORE_AWAY, Ledger
from treadle_operator.lifecycle.resolve import agent_references, check_agent
from treadle_operator.lifecycle.world import AgentWorld, Problem, ThreadFacts, ThreadObject, ThreadWorld
from treadle_operator.memory import Memory
from treadle_operator.objects import Objects
from treadle_operator.views import instant, thread_object


@dataclass(slots=True)
class SeenThread:
    """`raw` moves on when an action writes to it."""

    raw: Json
    world: ThreadWorld


@dataclass(slots=True)
class SeenAgent:
    raw: Json
    world: AgentWorld


class OtherObserver:
    def __init__(
        self, objects: Objects, ledger: Ledger, *, cache: Cache, memory: Memory, clock: StoreClock
    ) -> None:
        self._objects = objects
        self._ledger = ledger
        self._cache = cache
        self._memory = memory
        self._clock = clock

    async def thread(self, namespace: str, name: str) -> SeenThread | None:
        """None: there is no such Thread."""
        raw = await self._objects.get("threads", namespace, name)
        if raw is None:
            return None
        thread = thread_object(raw)
        metadata, spec = raw["metadata"], raw.get("spec") or {}
        agent = await self._objects.get("agents", namespace, thread.agent)
        runs = self._cache.runs_of_thread(namespace, name)
        row, store_down_for = await self._row(thread)
        world = ThreadWorld(
            thread=thread,
            generation=int(metadata.get("generation") or 0),
            now=self._clock.now(),
            deletion_policy=spec.get("deletionPolicy") or "Retain",
            finalizer=FINALIZER in (metadata.get("finalizers") or ()),
            status=raw.get("status") or {},
            agent_exists=agent is not None,
            row=row,
            store_down_for=store_down_for,
            conflict=self._conflict(raw, thread),
            unfinished_runs=sum(1 for run in runs if not finished(run)),
            deleting_for=self._memory.seen_for(thread.uid, "deleting") if thread.deleting else 0.0,
        )
        return SeenThread(raw, world)

    async def agent(self, namespace: str, name: str) -> SeenAgent | None:
        """None: there is no such Agent."""
        raw = await self._objects.get("agents", namespace, name)
        if raw is None:
            return None
        problem, graph, missing = await self._checked(namespace, raw)
        world = AgentWorld(
            namespace=namespace,
            name=name,
            generation=int(raw["metadata"].get("generation") or 0),
            now=self._clock.now(),
            graph=graph,
            problem=problem,
            missing_secrets=missing,
            store_down_for=self._ledger.down_for(),
            store_failed_over=self._ledger.failed_over,
            schema_problem=self._ledger.schema_problem,
            status=raw.get("status") or {},
        )
        return SeenAgent(raw, world)

    async def _checked(self, namespace: str, raw: Json) -> tuple[Problem | None, str, tuple[str, ...]]:
        built_in = ResolvedRun().graph
        try:
            spec = Agent.model_validate(raw).spec
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            return Problem(Reason.CONFIGURATION_INVALID, f"{where}: {first['msg']}"), built_in, ()
        contents = await self._objects.contents(namespace, agent_references(spec))
        key = spec.model.api_key_secret_key_ref
        secrets = [spec.store_secret_ref.name if spec.store_secret_ref else STORE_SECRET]
        secrets += [key.name] if key is not None else []
        missing = await self._objects.missing_secrets(namespace, secrets)
        return check_agent(spec, contents), spec.graph or built_in, missing

    async def _row(self, thread: ThreadObject) -> tuple[ThreadFacts | None, float | None]:
        try:
            return await self._ledger.thread(thread), None
        except STORE_AWAY:
            return None, self._ledger.down_for()

    def _conflict(self, raw: Json, thread: ThreadObject) -> str:
        """The Thread that had this threadID first: the older one keeps it."""
        mine = (instant(raw["metadata"].get("creationTimestamp")), thread.uid)
        for other in self._objects.threads_with_key(thread)[:1]:
            if (instant(other["metadata"].get("creationTimestamp")), uid(other)) < mine:
                return str(other["metadata"]["name"])
        return ""
