"""Carries out what was decided about a Run: one branch per action, each one idempotent call, in order.

A refused compare-and-set is no error: `carry` stops and says that the world has to be looked at again. What
the API server or the store refuses is kept in memory, for the rules to show and judge in the next pass.
"""

import logging
from collections.abc import Iterable
from typing import assert_never

from treadle_api.names import API_VERSION, FINALIZER, LABEL_MANAGED_BY, MANAGED_BY
from treadle_api.reasons import Reason
from treadle_api.records import Assigned, Json, RunRecord, RunUID
from treadle_operator.act_pods import Pods, Refused
from treadle_operator.failpoints import Failpoints
from treadle_operator.kube_errors import AlreadyExists
from treadle_operator.ledger import Ledger
from treadle_operator.lifecycle.actions import (
    AddFinalizer,
    Admit,
    Assign,
    CreatePod,
    CreateThread,
    DeleteLease,
    DeletePod,
    EmitEvent,
    EnsureLease,
    OrphanAction,
    RemoveFinalizer,
    RequestCancel,
    RevokeStream,
    RunAction,
    SettleOrphan,
)
from treadle_operator.lifecycle.world import Problem, ThreadObject
from treadle_operator.memory import Memory
from treadle_operator.metrics import Metrics
from treadle_operator.objects import Objects
from treadle_operator.observe import SeenRun
from treadle_operator.stream import Stream
from treadle_store.errors import StoreRejected

log = logging.getLogger(__name__)


class LookAgain(Exception):
    """The world is not as it was when this was decided: stop here and observe anew."""


class RunActor:
    def __init__(
        self,
        objects: Objects,
        pods: Pods,
        ledger: Ledger,
        stream: Stream,
        *,
        memory: Memory,
        metrics: Metrics,
        failpoints: Failpoints,
    ) -> None:
        self._objects = objects
        self._pods = pods
        self._ledger = ledger
        self._stream = stream
        self._memory = memory
        self._metrics = metrics
        self._failpoints = failpoints

    async def carry(self, seen: SeenRun, actions: Iterable[RunAction]) -> bool:
        """Performs the actions but for Events, which are told once the status stands.

        False: the store or the API server refused one, and the rest was left. Raises LookAgain, and what the
        adapters raise.
        """
        try:
            await self._carry(seen, actions)
        except Refused as refused:
            self._memory.refuse(seen.world.run.uid, refused.problem)
            return False
        return True

    async def _carry(self, seen: SeenRun, actions: Iterable[RunAction]) -> None:
        assigned: Assigned | None = None
        for action in actions:
            match action:
                case AddFinalizer():
                    seen.raw = await self._objects.add_finalizer("runs", seen.raw)
                    self._failpoints.hit("after_finalizer")
                case DeleteLease():
                    await self._pods.delete_lease(seen)
                case RemoveFinalizer():
                    seen.raw = await self._objects.remove_finalizer("runs", seen.raw)
                    self._failpoints.hit("after_cleanup")
                case CreateThread():
                    await self._create_thread(seen, action)
                case Admit():
                    await self._admit(seen, action)
                case Assign():
                    assigned = await self._assign(seen, action)
                case EnsureLease():
                    await self._pods.ensure_lease(seen, action.pod)
                    self._failpoints.hit("after_lease")
                case CreatePod():
                    await self._create_pod(seen, action, assigned)
                case DeletePod():
                    await self._pods.delete(seen, action)
                case RequestCancel() | SettleOrphan() | RevokeStream():
                    if seen.world.record is None:
                        raise AssertionError(f"{type(action).__name__} belongs to an admitted run")
                    await self._carry_record(seen.world.record, action)
                case EmitEvent():
                    continue
                case _:
                    assert_never(action)
            self._metrics.actions.labels(type(action).__name__).inc()

    async def carry_record(self, record: RunRecord, actions: Iterable[OrphanAction]) -> None:
        """The same for a row whose Run object is gone."""
        for action in actions:
            await self._carry_record(record, action)
            self._metrics.actions.labels(type(action).__name__).inc()

    async def _carry_record(self, record: RunRecord, action: OrphanAction) -> None:
        match action:
            case RequestCancel():
                await self._ledger.request_cancel(record.run_id, action.action, action.reason)
            case SettleOrphan():
                await self._settle(record, action)
            case RevokeStream():
                await self._stream.revoke(record.namespace, action.thread_id, action.token)
            case _:
                assert_never(action)

    async def _create_thread(self, seen: SeenRun, action: CreateThread) -> None:
        body: Json = {
            "apiVersion": API_VERSION,
            "kind": "Thread",
            "metadata": {
                "name": action.name,
                "labels": {LABEL_MANAGED_BY: MANAGED_BY},
                "finalizers": [FINALIZER],  # one write less than to add it in the Thread's first pass
            },
            "spec": {"agentRef": {"name": action.agent}},
        }
        try:
            await self._objects.create("threads", seen.world.run.namespace, body)
        except AlreadyExists:
            await self._objects.get("threads", seen.world.run.namespace, action.name, live=True)

    async def _admit(self, seen: SeenRun, action: Admit) -> None:
        run = seen.world.run
        try:
            thread_id = await self._ledger.register(action.thread, adopt=self._adopts(action.thread))
            self._failpoints.hit("after_register")
            result = await self._ledger.admit(run, thread_id, action)
        except StoreRejected as rejected:
            raise Refused(_refusal(rejected)) from rejected
        self._failpoints.hit("after_admit")
        match result:
            case "queue_full":
                told = (
                    f"{action.thread.max_queued_runs} Runs of Thread {action.thread.name} wait already"
                    " (maxQueuedRuns); wait for some to end, then create another Run"
                )
                raise Refused(Problem(Reason.QUEUE_FULL, told, final=True))
            case "thread_not_found":  # it was retired between the two calls
                raise LookAgain
        self._memory.accept(run.uid)

    def _adopts(self, thread: ThreadObject) -> bool:
        """Whether the threadID may be taken over from another name: no Thread object claims it any more."""
        return not self._objects.threads_with_key(thread)

    async def _assign(self, seen: SeenRun, action: Assign) -> Assigned:
        run, record = seen.world.run, seen.world.record
        assigned = await self._ledger.assign(RunUID(run.uid), action)
        if assigned is None or record is None:
            raise LookAgain
        self._failpoints.hit("after_assign")
        if action.loss is not None:
            self._metrics.takeovers.labels(action.loss.value).inc()
        if action.attempt != record.attempt:
            log.info(
                "An attempt was assigned",
                extra={
                    "run": f"{run.namespace}/{run.name}",
                    "thread_key": record.thread_key,
                    "attempt": action.attempt,
                    "token": assigned.token,
                    "reason": action.reason,
                },
            )
        await self._stream.grant(
            run.namespace, record.thread_id, record.log, assigned.token, assigned.fence_key
        )
        self._failpoints.hit("after_grant")
        self._memory.assigned(run.uid, assigned.attempt)
        return assigned

    async def _create_pod(self, seen: SeenRun, action: CreatePod, assigned: Assigned | None) -> None:
        if assigned is None or assigned.attempt != action.attempt:
            raise AssertionError("a pod is only ever created for the assignment made in the same pass")
        await self._pods.create(seen, assigned, retries_left=action.retries_left)
        self._memory.accept(seen.world.run.uid)
        self._failpoints.hit("after_pod")

    async def _settle(self, record: RunRecord, action: SettleOrphan) -> None:
        settled = await self._ledger.settle_orphan(record.run_id, action)
        if settled is None:
            raise LookAgain
        self._failpoints.hit("after_settle")
        log.info(
            "A run was settled in its holder's place",
            extra={
                "run": f"{record.namespace}/{record.name}",
                "thread_key": record.thread_key,
                "attempt": record.attempt,
                "outcome": settled.outcome.value,
                "reason": action.reason,
            },
        )
        await self._stream.end(record, settled.outcome.value)


def _refusal(rejected: StoreRejected) -> Problem:
    known = {reason.value: reason for reason in Reason}
    reason = known.get(rejected.reason, Reason.INPUT_UNAVAILABLE)
    return Problem(reason, rejected.message, final=reason is not Reason.THREAD_ID_CONFLICT)
