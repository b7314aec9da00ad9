"""The end of a run: workspace, receipt, one statement; bounded retries, then an honest error."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import uuid4

from treadle_api.reasons import Reason
from treadle_api.records import Assignment, Claim, Json, ManifestEntry, RunStatus, Settled
from treadle_api.resolved import ResolvedRun
from treadle_runtime import delivery, outcome
from treadle_runtime.callbacks import RunCallbacks
from treadle_runtime.executor import Ending, Failed, Finished
from treadle_runtime.failpoints import Failpoints
from treadle_runtime.journal import Journal
from treadle_runtime.outcome import Verdict
from treadle_runtime.publish import Broadcast
from treadle_runtime.workspace.plane import WorkspacePlane
from treadle_store import agent
from treadle_store.errors import CancelWon, StoreRejected, StoreUnavailable
from treadle_store.pool import Executor as Database

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_SECONDS: Final = 0.2
_LONGEST_RETRY_SECONDS: Final = 5.0


class ReceiptUnwritable(Exception):
    """The store takes no receipt from us; the operator settles the run with `settle_orphan`."""


@dataclass(slots=True)
class Settlement:
    """Everything that the receipt of one run is made of."""

    db: Database
    assignment: Assignment
    claim: Claim
    config: ResolvedRun
    workspace: WorkspacePlane
    journal: Journal
    callbacks: RunCallbacks
    broadcast: Broadcast
    failpoints: Failpoints

    async def settle(self, ending: Ending, verdict: Verdict | None = None) -> Settled:
        """Write the end event, the receipt and the terminal status; the workspace must be captured before.

        `verdict` overrides what the ending alone would say. Raises StaleToken, StoreFailedOver,
        StoreUnavailable when the store stays away, ReceiptUnwritable.
        """
        delivered = self._delivered(ending)
        said = verdict or self._judge(ending, delivered)
        if said.outcome is not RunStatus.CANCELLED:
            try:
                await self._persist(lambda: agent.begin_finalizing(self.db, self.assignment.capability))
            except CancelWon:
                said = outcome.of_cancel("cancel")
        self.failpoints.reach("after_finalizing")
        settled = await self._write(ending, delivered, said)
        self.failpoints.reach("after_settle")
        log.info(
            "run settled",
            extra={"fields": {"outcome": settled.outcome, "reason": said.reason, "answer": settled.result}},
        )
        return settled

    async def _write(self, ending: Ending, delivered: delivery.Delivered, said: Verdict) -> Settled:
        receipt = self._receipt(ending, delivered, said)
        self.failpoints.reach("before_settle")
        try:
            settled = await self._settle(said, receipt)
            if settled.result == "cancel_won":
                said = outcome.of_cancel("cancel")
                settled = await self._settle(said, self._receipt(ending, delivered, said))
        except CancelWon:
            said = outcome.of_cancel("cancel")
            settled = await self._settle(said, self._receipt(ending, delivered, said))
        except StoreRejected as error:
            log.error("receipt refused", extra={"fields": {"error": str(error)}})
            settled = await self._settle_unwritable(str(error))
        if settled.result not in ("settled", "already"):
            raise ReceiptUnwritable(f"the store answered {settled.result} ({settled.outcome})")
        return settled

    async def _settle_unwritable(self, why: str) -> Settled:
        """A receipt that holds nothing that could be refused, so that the work never counts as delivered."""
        said = Verdict(
            RunStatus.ERROR, Reason.RECEIPT_UNWRITABLE, outcome.readable(f"the receipt was refused: {why}")
        )
        try:
            return await self._settle(said, {"reason": said.reason, "message": said.message, "artifacts": []})
        except StoreRejected as error:
            raise ReceiptUnwritable(str(error)) from error

    async def _settle(self, said: Verdict, receipt: Json) -> Settled:
        end: Json = {"outcome": said.outcome, "reason": said.reason, "message": said.message}
        end_id, delivery_id = uuid4(), uuid4()
        return await self._persist(
            lambda: agent.settle_run(
                self.db,
                self.assignment.capability,
                outcome=said.outcome,
                end=end,
                receipt=receipt,
                end_event_id=end_id,
                delivery_event_id=delivery_id,
            )
        )

    async def _persist(self, statement: Callable[[], Awaitable[T]]) -> T:
        """Repeat an idempotent statement until the run's finalizeSeconds are over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.timeouts.finalize_seconds
        pause = _RETRY_SECONDS
        while True:
            try:
                return await statement()
            except StoreUnavailable as error:
                if loop.time() + pause > deadline:
                    raise
                log.warning("store away while settling", extra={"fields": {"error": str(error)}})
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_RETRY_SECONDS)

    def _delivered(self, ending: Ending) -> delivery.Delivered:
        presented = ending.values.get("presented") or {}
        ours = presented.get("run") == self.assignment.capability.run_id
        return delivery.assess(
            self.config.delivery,
            baseline=_baseline(self.claim),
            manifest=self.workspace.entries,
            presented=presented.get("paths", ()) if ours else (),
        )

    def _judge(self, ending: Ending, delivered: delivery.Delivered) -> Verdict:
        match ending:
            case Failed(failure=failure):
                return outcome.of_failure(failure)
            case Finished():
                return outcome.of_success(
                    requirement=self.config.delivery.requirement,
                    coverage=delivered.coverage,
                    presented=len(delivered.presented),
                    missing=delivered.missing,
                )
            case _:
                return outcome.of_cancel("drained")

    def _receipt(self, ending: Ending, delivered: delivery.Delivered, said: Verdict) -> Json:
        answer = ending.last_answer if isinstance(ending, Finished) else None
        own = self.assignment
        return {
            "run": own.capability.run_id,
            "thread": own.thread_key,
            "attempt": own.attempt,
            "token": own.capability.token,
            "checkpoint": ending.checkpoint,
            "message_id": answer.id if answer else None,
            "summary": delivery.summarize(answer.text) if answer else "",
            "outcome": said.outcome,
            "reason": said.reason,
            "message": said.message,
            "produced": delivery.paths(delivered.produced),
            "presented": delivery.paths([entry.path for entry in delivered.presented]),
            "matched": delivery.paths(delivered.matched),
            "coverage": _coverage(delivered, said, self.config.delivery.requirement),
            "requirement": self.config.delivery.requirement,
            "artifacts": [delivery.artifact(entry) for entry in delivered.presented],
            "journal_complete": self.journal.complete,
            "stream_degraded": self.broadcast.degraded,
            "usage": self.callbacks.usage(),
            "model": self.callbacks.model_name,
        }


def _baseline(claim: Claim) -> list[ManifestEntry]:
    """The workspace as the run found it: what it was before, and the Run's own files on top."""
    return list({entry.path: entry for entry in (*claim.baseline, *claim.files)}.values())


def _coverage(delivered: delivery.Delivered, said: Verdict, requirement: str) -> delivery.Coverage:
    """A run that failed delivered nothing, whatever lies in its workspace."""
    if said.outcome is RunStatus.SUCCESS or delivered.coverage is delivery.Coverage.FAILED:
        return delivered.coverage
    return delivery.Coverage.UNKNOWN if requirement == "None" else delivery.Coverage.FAILED
