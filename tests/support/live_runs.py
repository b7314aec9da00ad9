"""A run that a test plays: operator and agent in one hand, on a real store and, where given, a real wire."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from support.claims import NAMESPACE, Claimer
from support.stores import Store
from treadle_api.records import Assignment, Capability, Event, Frame, ManifestEntry, RunStatus, ThreadID
from treadle_store import agent, events, workspace
from treadle_store.pool import Pool
from treadle_store.run_views import RunView, view_run
from treadle_store.streams import Publisher, Wire, WireUnavailable


@dataclass
class LiveRun:
    """One claimed attempt. `say` commits an event, and publishes it where there is a wire."""

    claimer: Claimer
    db: Pool
    reading: Pool
    capability: Capability
    view: RunView
    wire: Wire | None
    address: str
    publisher: Publisher | None = None
    head: int = 0
    artifacts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def namespace(self) -> str:
        return self.view.namespace

    def cursor(self, seq: int, n: int = 0) -> str:
        return f"{self.view.log}.{seq}-{n}"

    async def grant(self) -> None:
        """As the operator does at assignment and after Redis restarted."""
        assert self.wire is not None
        own = self.capability
        assert await self.wire.grant(NAMESPACE, own.thread_id, self.view.log, own.token, own.fence_key)
        if self.publisher is not None:
            await self.publisher.close()
        assignment = Assignment(
            own, NAMESPACE, self.name, "thread", self.view.attempt, self.view.log, config={}
        )
        self.publisher = Publisher(self.address, assignment)

    async def say(self, text: str, *, type: str = "message", publish: bool = True) -> int:
        """Commit one event; its seq."""
        payload = {"text": text}
        appended = await events.append_events(self.db, self.capability, [Event(uuid4(), type, payload)])
        self.head = appended.last
        if publish:
            await self._publish(Frame(f"{self.head}-0", *self._owner, type, payload))
        return self.head

    async def delta(self, text: str, *, type: str = "token") -> None:
        await self._publish(Frame(f"{self.head}-*", *self._owner, type, {"text": text}))

    async def present(self, path: str, data: bytes, media_type: str) -> str:
        """Store a file that the receipt will list; its sha256."""
        sha256 = await workspace.put_blob(self.db, self.capability, data)
        entry = ManifestEntry(path, sha256, len(data), 0o644, media_type)
        await workspace.put_manifest(self.db, self.capability, [entry], uuid4())
        self.artifacts.append({"path": path, "sha256": sha256, "bytes": len(data), "media_type": media_type})
        return sha256

    async def settle(self, outcome: RunStatus = RunStatus.SUCCESS, *, publish_end: bool = True) -> None:
        await agent.begin_finalizing(self.db, self.capability)
        receipt = {
            "reason": "Delivered",
            "message": "done",
            "summary": "All done.",
            "artifacts": self.artifacts,
        }
        await agent.settle_run(
            self.db,
            self.capability,
            outcome=outcome,
            end={"reason": "Delivered"},
            receipt=receipt,
            end_event_id=uuid4(),
            delivery_event_id=uuid4(),
        )
        if publish_end and self.publisher is not None:
            with contextlib.suppress(WireUnavailable):
                await self.publisher.publish_end(outcome.value)

    async def take_over(self) -> None:
        """The next attempt, claimed."""
        self.capability = await self.claimer.take_over(self.capability)
        await self.look()
        if self.wire is not None:
            await self.grant()

    async def look(self) -> None:
        view = await view_run(self.reading, self.capability.run_id)
        assert view is not None
        self.view = view

    async def close(self) -> None:
        if self.publisher is not None:
            await self.publisher.close()

    @property
    def _owner(self) -> tuple[Any, Any]:
        return self.capability.run_id, self.capability.token

    async def _publish(self, frame: Frame) -> None:
        if self.publisher is not None:
            with contextlib.suppress(WireUnavailable):
                assert await self.publisher.publish([frame])


@dataclass
class LiveRuns:
    """Starts runs on one store; with a wire when one is given."""

    claimer: Claimer
    agent_pool: Pool
    gateway_pool: Pool
    wire: Wire | None = None
    address: str = ""
    started: list[LiveRun] = field(default_factory=list)

    async def start(self, thread: ThreadID | None = None) -> LiveRun:
        capability = await (self.claimer.next_run(thread) if thread else self.claimer.new_run())
        view = await view_run(self.gateway_pool, capability.run_id)
        assert view is not None
        run = LiveRun(
            self.claimer,
            self.agent_pool,
            self.gateway_pool,
            capability,
            view,
            self.wire,
            self.address,
            head=view.head_seq,
        )
        if self.wire is not None:
            await run.grant()
        self.started.append(run)
        return run


@contextlib.asynccontextmanager
async def live_runs(store: Store, wire: Wire | None = None, address: str = "") -> AsyncIterator[LiveRuns]:
    operator, agents, gateway = [await store.pool(role) for role in ("operator", "agent", "gateway")]
    runs = LiveRuns(Claimer(operator, agents), agents, gateway, wire, address)
    try:
        yield runs
    finally:
        for run in runs.started:
            await run.close()
