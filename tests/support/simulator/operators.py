"""The operator's shell, as badly as it may behave: stale caches, lost calls, kills between any two steps.

Only `decide_run` and `decide_orphan` are the real thing; they are looked up at each pass, so that a test can
break a rule and see the simulator notice.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from support.simulator.agents import Pod
from support.simulator.apiserver import ApiServer, PodBody, RunBody
from support.simulator.loop import Broken, Loop, Process, Refused, Unavailable
from support.simulator.memory import Memory
from support.simulator.store import EPOCH, Store
from treadle_api import names
from treadle_api.records import RunStatus
from treadle_operator.lifecycle import actions as act
from treadle_operator.lifecycle import orphan, run
from treadle_operator.lifecycle.world import (
    NO_LEASE,
    AgentFacts,
    LeaseView,
    PodView,
    Prepared,
    RunObject,
    RunWorld,
    ThreadObject,
)

THREAD = ThreadObject("team", "sales", "thread-uid", "reviewer", "sales")
AGENT = AgentFacts("reviewer", 1, 30)
POLL = 20.0
StartPod = Callable[[Pod], None]


@dataclass(slots=True)
class Operator:
    name: str
    loop: Loop
    api: ApiServer
    store: Store
    config: dict[str, Any]
    start_pod: StartPod
    plans: dict[str, tuple[int, RunStatus]]
    live_reads: bool
    life: int = 0
    frozen_until: float = 0.0
    memory: Memory = field(default_factory=Memory)
    cache: dict[str, tuple[RunBody | None, tuple[PodBody, ...]]] = field(default_factory=dict)
    looked_at: dict[str, RunBody] = field(default_factory=dict)
    """The object as the current pass saw it. What is written carries its resourceVersion, never that of a
    cache that moved on meanwhile: the write would be decided on older facts than it claims."""
    _due: dict[str, float] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """(Re)start: nothing is remembered, everything is listed."""
        self.life += 1
        self.memory, self.cache, self._due, self._busy = Memory(), {}, {}, set()
        life = self.life
        self.loop.spawn(self._polls(), alive=lambda: self.life == life)

    def kill(self) -> None:
        self.life += 1

    def seen(self, uid: str) -> None:
        """A watch event: late, sometimes lost."""
        if self.loop.chance(0.05):
            return
        life = self.life
        delay = self.loop.random.uniform(0.01, 0.3) if not self.loop.chance(0.1) else 5.0
        self.loop.spawn(self._refresh(uid), after=delay, alive=lambda: self.life == life)

    def _refresh(self, uid: str) -> Process:
        self._look(uid)
        if uid in self.api.runs and not self._left(uid):
            self._wake(uid, 0.0)
        return
        yield 0.0

    def _look(self, uid: str) -> None:
        pods = tuple(p for p in self.api.pods.values() if p.run == uid)
        self.cache[uid] = (self.api.runs.get(uid), pods)

    def _left(self, uid: str) -> bool:
        """Whether the Run is finished and let go: it has left the watch, and its edits are nothing to us."""
        body = self.cache[uid][0]
        return body is None or (not body.finalizer and body.true("Finished"))

    def _wake(self, uid: str, after: float) -> None:
        at = self.loop.now + after
        if uid in self._busy:
            self._due[uid] = min(at, self._due.get(uid, at))
            return
        if uid in self._due and self._due[uid] <= at:
            return
        self._due[uid] = at
        life = self.life
        self.loop.spawn(self._pass(uid, at), after=after, alive=lambda: self.life == life)

    def _polls(self) -> Process:
        while True:
            for uid in list(self.api.runs):
                self._look(uid)
                if not self._left(uid):
                    self._wake(uid, 0.0)
            try:
                left = self.store.unfinished()
            except Unavailable:
                left = []
            for record in left:
                if record.run_id not in self.api.runs:
                    self._carry_out(record.run_id, orphan.decide_orphan(record).actions)
            yield POLL

    def _pass(self, uid: str, due_at: float) -> Process:
        if self._due.get(uid) != due_at or uid in self._busy:
            return
        del self._due[uid]
        self._busy.add(uid)
        wake: float | None = POLL
        try:
            world = yield from self._observe(uid, live=False)
            decision = run.decide_run(world) if world is not None else act.Decision()
            if self.live_reads and _irreversible(decision):
                world = yield from self._observe(uid, live=True)
                decision = run.decide_run(world) if world is not None else act.Decision()
            if world is not None:
                wake = yield from self._act(uid, world, decision)
        finally:
            self._busy.discard(uid)
        due = self._due.pop(uid, None)
        waits = [at for at in (wake, due and max(0.0, due - self.loop.now)) if at is not None]
        if waits and uid in self.api.runs:
            self._wake(uid, min(waits))

    def _act(
        self, uid: str, world: RunWorld, decision: act.RunDecision
    ) -> Generator[float, None, float | None]:
        for action in decision.actions:
            yield from self._rest()
            if not self._carry_out(uid, (action,), blind=world.store_down_for is not None):
                return self.loop.random.uniform(0.5, 2.0)
        if decision.status is not None and decision.status != world.run.status:
            yield from self._rest()
            try:
                self._edit(uid, status=decision.status)
            except (Unavailable, Refused):
                self._look(uid)
                return self.loop.random.uniform(0.5, 2.0)
        return decision.requeue_after

    def _rest(self) -> Process:
        yield self.loop.random.uniform(0.002, 0.02)
        while self.loop.now < self.frozen_until:
            yield self.frozen_until - self.loop.now

    def _observe(self, uid: str, *, live: bool) -> Generator[float, None, RunWorld | None]:
        """Pods first, the record last; between them anything may happen."""
        now, memory = self.loop.now, self.memory
        if live or uid not in self.cache:
            if self.loop.now < self.api.down_until:
                return None
            self._look(uid)
        body, pods = self.cache[uid]
        if body is None:
            return None
        self.looked_at[uid] = body
        views = tuple(self._pod(p.view, now) for p in sorted(pods, key=lambda p: p.view.attempt))
        lease_body = self.api.leases.get(uid)
        found = lease_body.view if lease_body is not None else NO_LEASE
        version = lease_body.version if lease_body is not None else None
        silent_for = memory.since(("lease", uid), version, now)
        lease = LeaseView(found.exists, found.holder, found.pod, silent_for)
        yield from self._rest()
        record, down = None, None
        try:
            record = self.store.record(uid)
            memory.since("store", True, self.loop.now)
        except Unavailable:
            down = memory.since("store", False, self.loop.now)
        now = self.loop.now
        key = (record.status, record.attempt) if record is not None else None
        return RunWorld(
            run=RunObject(
                "team", body.name, uid, 1, EPOCH + timedelta(seconds=body.created), "sales",
                template_agent="reviewer", start_seconds=60, finalizer=body.finalizer,
                deleting=body.deleting, status=body.status,
            ),
            now=min(self.store.clock(), EPOCH + timedelta(seconds=now)),
            seen_for=memory.since(("seen", uid), True, now),
            thread=THREAD if self.api.thread else None,
            agent=AGENT,
            prepared=Prepared("hash", self.config, {}) if record is None else None,
            pods=views,
            lease=lease,
            record=record,
            record_for=memory.since(("record", uid), key, now),
            store_down_for=down,
            deleting_for=memory.since(("deleting", uid), body.deleting, now),
        )  # fmt: skip

    def _pod(self, view: PodView, now: float) -> PodView:
        dead = self.memory.since(("pod", view.uid), view.alive, now)
        waiting = view.waiting
        if view.alive and waiting is None:
            return view
        if waiting is not None:
            waiting = replace(waiting, seen_for=self.memory.since(("waiting", view.uid), waiting.reason, now))
        return replace(view, dead_for=0.0 if view.alive else dead, waiting=waiting)

    def _carry_out(self, uid: str, actions: tuple[act.RunAction, ...], *, blind: bool = False) -> bool:
        """Whether every action was answered with yes. `blind`: decided without the store's word."""
        try:
            return all(self._one(uid, action, blind) for action in actions)
        except (Unavailable, Refused):
            self._look(uid)
            return False

    def _one(self, uid: str, action: act.RunAction, blind: bool) -> bool:
        api, store = self.api, self.store
        match action:
            case act.AddFinalizer():
                self._edit(uid, finalizer=True)
            case act.RemoveFinalizer():
                self._edit(uid, finalizer=False)
            case act.CreateThread():
                api.call(lambda: setattr(api, "thread", True))
            case act.Admit():
                body = self.cache[uid][0]
                name, at = (body.name, body.created) if body is not None else ("", 0.0)
                created = EPOCH + timedelta(seconds=at)
                store.call(lambda: store.admit(uid, name, created, self.config))
            case act.Assign(attempt, token, pod, loss, reason):
                key = store.call(lambda: store.assign(uid, attempt, token, pod, loss, reason))
                self.memory.last[("key", uid)] = (attempt, key)
                return key is not None
            case act.EnsureLease(pod):
                api.call(lambda: api.ensure_lease(uid, pod))
            case act.DeleteLease():
                api.call(lambda: api.leases.pop(uid, None))
            case act.CreatePod(attempt):
                self._create(uid, attempt)
            case act.DeletePod(name, pod_uid, _):
                self._delete(uid, name, pod_uid, blind)
            case act.RequestCancel(kind, _):
                store.call(lambda: store.request_cancel(uid, kind))
            case act.SettleOrphan(outcome, reason, _, token):
                store.call(lambda: store.settle_orphan(uid, token, outcome, reason))
        return True

    def _edit(self, uid: str, **changes: Any) -> None:
        version = self.looked_at[uid].version
        fresh = self.api.call(lambda: self.api.edit_run(uid, version=version, **changes))
        self.looked_at[uid] = fresh
        self.cache[uid] = (fresh, self.cache[uid][1])

    def _create(self, uid: str, attempt: int) -> None:
        known, key = self.memory.last.get(("key", uid), (0, None))
        if known != attempt or key is None or attempt > self.store.rows[uid].attempt:
            raise Broken(f"a pod for attempt {attempt} before its token")
        body = self.api.runs.get(uid)
        name = names.pod_name(body.name if body is not None else "", attempt)
        view = PodView(name, f"{name}-{self.api.version()}", attempt, "Pending", True, node="node")
        steps, outcome = self.plans[uid]
        pod = Pod(self.loop, self.api, self.store, uid, view, key, steps, outcome)

        def create() -> None:
            if self.api.create_pod(uid, view):
                self.start_pod(pod)

        self.api.call(create)
        self._look(uid)

    def _delete(self, uid: str, name: str, pod_uid: str, blind: bool) -> None:
        holds = self.store.active == uid and (self.store.holder or "").startswith(f"{pod_uid}/")
        if holds and not blind:
            raise Broken(f"{name} is ended while it still owns the thread")
        self.api.call(lambda: self.api.delete_pod(name, pod_uid))


def _irreversible(decision: act.RunDecision) -> bool:
    kinds = (act.CreatePod, act.SettleOrphan, act.RemoveFinalizer)
    if any(isinstance(action, kinds) for action in decision.actions):
        return True
    conditions = (decision.status or {}).get("conditions", ())
    return any(c["type"] == "Finished" for c in conditions)
