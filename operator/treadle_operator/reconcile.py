"""One pass over one key: observe -> decide -> act -> write status -> tell.

A pass over a Run goes on in rounds until nothing is left to do at once. A decision that could not be taken
back is made twice: from what is remembered, and again from a live look. The queue repeats what fails; nothing
here does.
"""

import logging
from time import perf_counter
from typing import Final

from treadle_api.names import FINALIZER
from treadle_api.records import Json, RunUID
from treadle_operator.act import LookAgain, RunActor
from treadle_operator.act_threads import ThreadActor
from treadle_operator.cache import finished, uid
from treadle_operator.events import Recorder, Told
from treadle_operator.failpoints import Failpoints
from treadle_operator.intake import Intake
from treadle_operator.keys import Key, Kind
from treadle_operator.kube_errors import ClusterError, Conflict, NotFound, Unavailable
from treadle_operator.leases import LeaseBook
from treadle_operator.ledger import STORE_AWAY, Ledger
from treadle_operator.lifecycle.actions import (
    Action,
    Admit,
    Assign,
    CreatePod,
    Decision,
    EmitEvent,
    RemoveFinalizer,
    RunDecision,
    SettleOrphan,
    Status,
)
from treadle_operator.lifecycle.agent import decide_agent
from treadle_operator.lifecycle.orphan import decide_orphan
from treadle_operator.lifecycle.run import decided_by
from treadle_operator.lifecycle.thread import decide_thread
from treadle_operator.memory import Memory
from treadle_operator.metrics import Metrics
from treadle_operator.objects import Objects
from treadle_operator.observe import RunObserver, SeenRun
from treadle_operator.observe_others import OtherObserver
from treadle_store.errors import StoreError

log = logging.getLogger(__name__)

_IRREVOCABLE = (Assign, CreatePod, SettleOrphan)
ROUNDS: Final = 8
"""Of one pass over a Run; then other keys get their turn first."""
LIVE_SECONDS: Final = 5.0
"""For how long what the API server answered to a guarded write of the Run is as good as a look at it."""


class Reconciler:
    """Call it with a key: it makes one pass and returns the seconds until the next, None for "when woken"."""

    def __init__(
        self,
        *,
        runs: RunObserver,
        others: OtherObserver,
        run_actor: RunActor,
        thread_actor: ThreadActor,
        objects: Objects,
        ledger: Ledger,
        intake: Intake,
        recorder: Recorder,
        memory: Memory,
        leases: LeaseBook,
        metrics: Metrics,
        failpoints: Failpoints,
    ) -> None:
        self._runs = runs
        self._others = others
        self._run_actor = run_actor
        self._thread_actor = thread_actor
        self._objects = objects
        self._ledger = ledger
        self._intake = intake
        self._recorder = recorder
        self._memory = memory
        self._leases = leases
        self._metrics = metrics
        self._failpoints = failpoints

    async def __call__(self, key: Key) -> float | None:
        began = perf_counter()
        result = "error"
        try:
            delay = await self._pass(key)
            result = "ok"
            return delay
        except LookAgain:
            result = "raced"
            raise
        except Conflict:
            result = "conflict"
            if key.kind is not Kind.ROW:
                await self._objects.get(key.kind, key.namespace, key.name, live=True)
            raise
        except (Unavailable, *STORE_AWAY):
            result = "unavailable"
            raise
        finally:
            self._metrics.reconciles.labels(key.kind, result).inc()
            self._metrics.duration.labels(key.kind).observe(perf_counter() - began)

    async def _pass(self, key: Key) -> float | None:
        match key.kind:
            case Kind.RUN:
                return await self._run(key)
            case Kind.THREAD:
                return await self._thread(key)
            case Kind.AGENT:
                return await self._agent(key)
            case Kind.ROW:
                return await self._row(key)

    async def _run(self, key: Key) -> float | None:
        delay: float | None = 0.0
        written_at: float | None = None
        for _ in range(ROUNDS):
            delay, written_at = await self._round(key, written_at)
            if delay != 0.0:
                break
        return delay

    async def _round(self, key: Key, written_at: float | None) -> tuple[float | None, float | None]:
        """Looks once and does what is to be done. `written_at`: when this pass last wrote to the Run, which
        succeeds only where nobody else has written since. Returns the seconds to the next look, and the new
        `written_at`."""
        seen = await self._runs.run(key.namespace, key.name)
        if seen is None:
            return None, None
        rule, decision = decided_by(seen.world)
        irrevocable = any(isinstance(action, _IRREVOCABLE) for action in decision.actions)
        if irrevocable and not (_never_assigned(seen) and _lately(written_at)):
            seen = await self._runs.run(key.namespace, key.name, after=seen)
            if seen is None:
                return None, None
            rule, decision = decided_by(seen.world)
        before = seen.raw
        done = await self._run_actor.carry(seen, decision.actions)
        seen.raw = await self._show("runs", seen.raw, decision.status, rule)
        if seen.raw is not before:
            written_at = perf_counter()
        self._tell("Run", seen.raw, decision)
        self._after_run(seen, decision)
        if not done and seen.world.refused is None:
            return 0.0, written_at  # the rules have not judged this refusal yet
        return decision.requeue_after, written_at

    def _after_run(self, seen: SeenRun, decision: RunDecision) -> None:
        run = seen.world.run
        ended = finished(seen.raw)
        freed_slot = any(
            isinstance(action, SettleOrphan) or (isinstance(action, RemoveFinalizer) and run.deleting)
            for action in decision.actions
        )
        if (ended and not run.finished) or freed_slot:
            self._intake.thread_moved_on(run.namespace, run.thread)
        elif any(isinstance(action, Assign) for action in decision.actions):
            self._intake.thread_changed(run.namespace, run.thread)
        elif any(isinstance(action, Admit) for action in decision.actions):
            self._intake.run_arrived(run.namespace, run.thread)
        freed = FINALIZER not in (seen.raw["metadata"].get("finalizers") or ())
        if freed and ((ended and decision.requeue_after is None) or run.deleting):
            self._forget(seen)

    def _forget(self, seen: SeenRun) -> None:
        """Nothing is left to do for this Run: it costs nothing from here on (R96)."""
        self._objects.forget_run(seen.raw)
        self._memory.forget(seen.world.run.uid)
        self._leases.forget(seen.world.run.uid)

    async def _thread(self, key: Key) -> float | None:
        seen = await self._others.thread(key.namespace, key.name)
        if seen is None:
            return None
        decision = decide_thread(seen.world)
        await self._thread_actor.carry(seen, decision.actions)
        seen.raw = await self._show("threads", seen.raw, decision.status, "thread")
        self._tell("Thread", seen.raw, decision)
        if seen.world.thread.deleting and not seen.raw["metadata"].get("finalizers"):
            self._objects.forget("threads", seen.raw)
            self._memory.forget(seen.world.thread.uid)
        return decision.requeue_after

    async def _agent(self, key: Key) -> float | None:
        seen = await self._others.agent(key.namespace, key.name)
        if seen is None:
            return None
        decision = decide_agent(seen.world)
        await self._show("agents", seen.raw, decision.status, "agent")
        return decision.requeue_after

    async def _row(self, key: Key) -> float | None:
        """A row of the store without a known object: after a live look it is given back, or settled."""
        record = await self._ledger.record(RunUID(key.name))
        if record is None:
            return None
        run = await self._objects.get("runs", record.namespace, record.name, live=True)
        if run is not None and uid(run) == record.run_id:
            self._intake.run_changed(record.run_id)
            return None
        await self._run_actor.carry_record(record, decide_orphan(record).actions)
        return None

    async def _show(self, resource: str, raw: Json, status: Status | None, rule: str) -> Json:
        """Writes the status where it differs from what stands. The object as it is afterwards."""
        before = raw.get("status") or {}
        if status is None or status == before:
            return raw
        if resource == "runs":
            self._failpoints.hit("before_status")
        try:
            written = await self._objects.write_status(resource, raw, status)
        except NotFound:
            self._objects.forget(resource, raw)
            return raw
        self._metrics.status_writes.labels(resource).inc()
        if resource == "runs":
            self._failpoints.hit("after_status")
            if finished(written):
                self._failpoints.hit("after_end")
        if before.get("phase") != status.get("phase"):
            metadata = raw["metadata"]
            log.info(
                "A phase was entered",
                extra={
                    "object": f"{resource}/{metadata['namespace']}/{metadata['name']}",
                    "phase": status.get("phase"),
                    "attempt": status.get("attempt"),
                    "rule": rule,
                },
            )
        return written

    def _tell(self, kind: str, raw: Json, decision: Decision[Action]) -> None:
        metadata = raw["metadata"]
        for action in decision.actions:
            if isinstance(action, EmitEvent):
                self._recorder.tell(
                    Told(
                        kind,
                        metadata["namespace"],
                        metadata["name"],
                        uid(raw),
                        action.type,
                        action.reason,
                        action.message,
                    )
                )


def _never_assigned(seen: SeenRun) -> bool:
    """Whether the store knows of no attempt: then there is neither pod nor Lease that could be looked at."""
    record = seen.world.record
    return record is not None and record.attempt == 0 and not seen.world.pods


def _lately(written_at: float | None) -> bool:
    return written_at is not None and perf_counter() - written_at < LIVE_SECONDS


def log_failure(key: Key, error: Exception, failures: int, delay: float) -> None:
    """Somebody being quicker is no news, an adapter out of reach a warning, the rest a fault of ours."""
    fields = {"key": str(key), "failures": failures, "delay": round(delay, 2), "error": str(error)}
    match error:
        case LookAgain() | Conflict():
            log.debug("The world had moved on; the pass is repeated", extra=fields)
        case ClusterError() | StoreError() | TimeoutError():
            log.warning("A pass failed and will be repeated", extra=fields)
        case _:
            log.error("A pass failed and will be repeated", extra=fields, exc_info=error)
