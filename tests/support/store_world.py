"""Threads and runs of a test's store, made as the operator makes them."""

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from treadle_api.records import (
    Admission,
    AdmitFile,
    Assigned,
    Capability,
    Event,
    FencingToken,
    Json,
    LossClass,
    RunStatus,
    RunUID,
    Settled,
    ThreadID,
)
from treadle_store import agent, runs, threads
from treadle_store.pool import Executor

HOLDER = ("pod-uid-1", "nonce")
"""Pod uid and nonce of whoever claims."""
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_numbers = itertools.count(1)


def events(count: int, kind: str = "message") -> list[Event]:
    """Events with fresh ids."""
    return [Event(uuid4(), kind, {"n": n}) for n in range(count)]


@dataclass(frozen=True, slots=True)
class World:
    """`operator` and `agent` are pools or connections of those roles."""

    operator: Executor
    agent: Executor

    async def thread(self, namespace: str = "team", *, max_queued: int = 100) -> threads.ThreadRow:
        key = f"thread-{next(_numbers)}-{uuid4().hex[:6]}"
        return await threads.register_thread(
            self.operator, namespace, key, key, str(uuid4()), "lead", max_queued=max_queued
        )

    def admission(
        self, thread_id: ThreadID, *, created: int | None = None, files: tuple[AdmitFile, ...] = ()
    ) -> Admission:
        """A Run of the thread; `created` in seconds decides its place in the queue."""
        number = next(_numbers)
        config: Json = {"delivery": {"requirement": "All"}}
        return Admission(
            run_id=RunUID(str(uuid4())),
            namespace="team",
            name=f"run-{number}",
            thread_id=thread_id,
            spec_hash="0" * 64,
            input={"text": "hello"},
            config=config,
            object_created=_EPOCH + timedelta(seconds=number if created is None else created),
            files=files,
        )

    async def admit(self, thread_id: ThreadID, *, created: int | None = None) -> RunUID:
        admission = self.admission(thread_id, created=created)
        assert (await runs.admit_run(self.operator, admission)).result == "admitted"
        return admission.run_id

    async def assign(
        self, run_id: RunUID, attempt: int, token: int, *, loss: LossClass | None = None
    ) -> Assigned | None:
        return await runs.assign_run(
            self.operator,
            run_id=run_id,
            attempt=attempt,
            expected_token=FencingToken(token),
            pod=f"pod-{run_id}-{attempt}",
            loss=loss,
            reason=None if loss is None else "HolderLost",
        )

    async def start(self, thread_id: ThreadID | None = None) -> Capability:
        """A claimed first attempt, on a thread of its own where none is named."""
        if thread_id is None:
            thread_id = (await self.thread()).thread_id
        thread = await threads.read_thread(self.operator, thread_id)
        assert thread is not None
        run_id = await self.admit(thread_id)
        assigned = await self.assign(run_id, 1, thread.fencing_token)
        assert assigned is not None
        capability = Capability(thread_id, run_id, assigned.token, assigned.fence_key)
        await agent.claim_run(self.agent, capability, *HOLDER)
        return capability

    async def take_over(self, lost: Capability, attempt: int = 2) -> Capability:
        """The next attempt, assigned and not claimed: `lost` is stale."""
        assigned = await self.assign(lost.run_id, attempt, lost.token, loss=LossClass.DISRUPTION)
        assert assigned is not None
        return Capability(lost.thread_id, lost.run_id, assigned.token, assigned.fence_key)


async def settle(
    db: Executor, cap: Capability, outcome: RunStatus = RunStatus.SUCCESS, receipt: Json | None = None
) -> Settled:
    """Settles with fresh event ids."""
    return await agent.settle_run(
        db,
        cap,
        outcome=outcome,
        end={"outcome": outcome.value},
        receipt={"reason": "Delivered", "artifacts": [], **(receipt or {})},
        end_event_id=uuid4(),
        delivery_event_id=uuid4(),
    )
