"""Runs that a test holds: registered, admitted, assigned and claimed as operator and agent would."""

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from treadle_api.records import Admission, Capability, FencingToken, LossClass, RunUID, ThreadID
from treadle_store import agent, runs, threads
from treadle_store.pool import Executor

NAMESPACE = "team"
_counter = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Claimer:
    """Makes capabilities; `operator` and `agent` are connections or pools of those roles."""

    operator: Executor
    agent: Executor
    _attempts: dict[RunUID, int] = field(default_factory=dict)

    async def new_run(self) -> Capability:
        """A claimed run on a thread of its own."""
        key = f"thread-{uuid4().hex[:12]}"
        row = await threads.register_thread(self.operator, NAMESPACE, key, key, str(uuid4()), "coder")
        return await self.next_run(row.thread_id)

    async def next_run(self, thread_id: ThreadID) -> Capability:
        """The next claimed run of a thread whose slot is free."""
        run_id = RunUID(str(uuid4()))
        admission = Admission(
            run_id=run_id,
            namespace=NAMESPACE,
            name=f"run-{next(_counter)}",
            thread_id=thread_id,
            spec_hash="0" * 64,
            input={},
            config={},
            object_created=datetime.now(UTC),
        )
        await runs.admit_run(self.operator, admission)
        thread = await threads.read_thread(self.operator, thread_id)
        assert thread is not None
        return await self._assign(thread_id, run_id, thread.fencing_token, loss=None)

    async def take_over(self, lost: Capability) -> Capability:
        """The next attempt of a run whose holder was lost: from here on `lost` is stale."""
        return await self._assign(lost.thread_id, lost.run_id, lost.token, loss=LossClass.DISRUPTION)

    async def _assign(
        self, thread_id: ThreadID, run_id: RunUID, expected: FencingToken, *, loss: LossClass | None
    ) -> Capability:
        attempt = self._attempts[run_id] = self._attempts.get(run_id, 0) + 1
        assigned = await runs.assign_run(
            self.operator,
            run_id=run_id,
            attempt=attempt,
            expected_token=expected,
            pod=f"pod-{run_id}-{attempt}",
            loss=loss,
            reason="HolderLost" if loss else None,
        )
        assert assigned is not None, f"attempt {attempt} of run {run_id} is not assignable"
        capability = Capability(thread_id, run_id, assigned.token, assigned.fence_key)
        await agent.claim_run(self.agent, capability, str(uuid4()), "nonce")
        return capability
