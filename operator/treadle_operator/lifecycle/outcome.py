"""How a Run ends in its status: from a verified receipt, or by a refusal before anything was admitted.

A receipt counts when its token is that of the run's last assignment and it says what the run's row says
(03-ownership, step 9). Only then may Finished be written, and it is written once.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from treadle_api.reasons import Reason
from treadle_api.records import Receipt, RunRecord, RunStatus
from treadle_api.run_status import DeliveredArtifact, Phase
from treadle_api.settings import Requirement
from treadle_operator.lifecycle.actions import Status
from treadle_operator.lifecycle.conditions import FALSE, TRUE, UNKNOWN, shorten, stamp, word
from treadle_operator.lifecycle.status import Conditions, carry, duration, facts, usage
from treadle_operator.lifecycle.world import Problem, RunWorld

ARTIFACTS_LIMIT = 20
SUMMARY_LIMIT = 1000
"""Characters; at most 1 KiB as the CRD allows it."""

_PHASES = {RunStatus.SUCCESS: Phase.SUCCEEDED, RunStatus.CANCELLED: Phase.CANCELLED}
_OUTCOMES = {
    RunStatus.SUCCESS: "Success",
    RunStatus.TIMEOUT: "Timeout",
    RunStatus.CANCELLED: "Cancelled",
}
_JOURNAL = "Some events could not be written to the log; state and receipt are whole"
_COVERED = {"True": TRUE, "False": FALSE}


def verified(record: RunRecord) -> Receipt | None:
    """The run's receipt, if it was written under the last assignment and agrees with the run's row."""
    receipt = record.receipt
    if receipt is None or not record.status.terminal:
        return None
    agrees = receipt.payload.get("outcome", record.status.value) == record.status.value
    return receipt if agrees and receipt.token == record.token else None


def settled(world: RunWorld, record: RunRecord, receipt: Receipt) -> Status:
    """The terminal status that the receipt stands for."""
    said = receipt.payload
    success = record.status is RunStatus.SUCCESS
    default = Reason.DELIVERED if success else Reason.AGENT_ERROR
    reason = word(said.get("reason"), word(record.stop_reason, default))
    message = str(said.get("message") or _sentence(record.status, said))
    status = facts(world)
    status["phase"] = _PHASES.get(record.status, Phase.FAILED).value
    status["outcome"] = _OUTCOMES.get(record.status, "Error")
    _close(world, status, record.ended_at or receipt.created_at)
    status["delivery"] = _delivery(world, receipt)
    if isinstance(said.get("usage"), Mapping):
        status["usage"] = usage(said["usage"])
    if said.get("model"):
        status["model"] = str(said["model"])[:128]
    result = _result(said)
    if result:
        status["result"] = result
    says = Conditions(world)
    if not success:
        says.add("Stalled", TRUE, reason, message)
    says.add("Admitted", TRUE, Reason.ADMITTED, "The store holds the run with its input and files")
    if said.get("journal_complete") is False:
        says.add("EventsComplete", FALSE, Reason.EVENTS_MISSING, _JOURNAL)
    covered = _COVERED.get(str(said.get("coverage")), UNKNOWN)
    says.add("Delivered", covered, reason if success else Reason.NOT_DELIVERED, _delivered(said))
    says.add("Finished", TRUE, reason, message)
    says.add("Succeeded", TRUE if success else FALSE, reason, message)
    status["conditions"] = says.all
    return carry(world.run.status, status)


def refused(world: RunWorld, problem: Problem) -> Status:
    """The terminal status of a Run without a receipt that counts: never admitted, or the store lost it."""
    status = facts(world)
    status["phase"] = Phase.FAILED.value
    status["outcome"] = "Error"
    before = world.run.status.get("completionTime")
    status["completionTime"] = before or stamp(world.now)
    says = Conditions(world)
    says.add("Stalled", TRUE, problem.reason, problem.message)
    if world.record is None:
        says.add("Accepted", FALSE, problem.reason, problem.message)
    says.add("Finished", TRUE, problem.reason, problem.message)
    says.add("Succeeded", FALSE, problem.reason, problem.message)
    status["conditions"] = says.all
    return carry(world.run.status, status)


def renewed(world: RunWorld) -> Status:
    """A finished status moved to the newest generation, or `kubectl wait` times out after a spec edit."""
    status = dict(world.run.status)
    status["observedGeneration"] = world.run.generation
    status["conditions"] = [
        {**condition, "observedGeneration": world.run.generation}
        for condition in world.run.status.get("conditions", ())
    ]
    return status


def _close(world: RunWorld, status: Status, ended: datetime) -> None:
    status["completionTime"] = world.run.status.get("completionTime") or stamp(ended)
    if "startTime" in status:
        finish = datetime.fromisoformat(status["completionTime"])
        status["duration"] = duration((finish - datetime.fromisoformat(status["startTime"])).total_seconds())


def _delivery(world: RunWorld, receipt: Receipt) -> Status:
    said = receipt.payload
    before = world.run.status.get("delivery", {})
    shown: Status = {
        "receiptID": before.get("receiptID") or receipt.digest,
        "verifiedTime": before.get("verifiedTime") or stamp(world.now),
    }
    if said.get("requirement") in tuple(Requirement):
        shown["requirement"] = str(said["requirement"])
    for key in ("produced", "presented", "matched"):
        if said.get(key) is not None:
            shown[key] = _count(said[key])
    if said.get("coverage") is not None:
        shown["coverage"] = str(said["coverage"])[:32]
    files = _artifacts(said.get("artifacts"))
    if files:
        shown["artifacts"] = files
    return shown


def _artifacts(listed: object) -> list[Status]:
    """The first files of a receipt; one that the CRD could not hold is left to the receipt itself."""
    shown: dict[str, Status] = {}
    for item in listed if isinstance(listed, list) else []:
        if len(shown) < ARTIFACTS_LIMIT and isinstance(item, Mapping):
            try:
                file = DeliveredArtifact.model_validate({**item, "mediaType": item.get("media_type")})
            except ValidationError:
                continue
            shown[file.path] = file.model_dump(by_alias=True, exclude_none=True)
    return list(shown.values())


def _count(value: Any) -> int:
    """Receipts name the files; a status counts them."""
    if isinstance(value, list | tuple | dict):
        return len(value)
    return value if isinstance(value, int) and value >= 0 else 0


def _result(said: Mapping[str, Any]) -> Status:
    shown: Status = {}
    if said.get("summary"):
        shown["summary"] = shorten(str(said["summary"]), SUMMARY_LIMIT)
    if said.get("message_id"):
        shown["messageID"] = str(said["message_id"])[:128]
    return shown


def _sentence(outcome: RunStatus, said: Mapping[str, Any]) -> str:
    if outcome is RunStatus.SUCCESS:
        return f"The receipt is durable; {_count(said.get('presented') or 0)} files were presented"
    return f"The run ended as {outcome.value}; its events say more: kubectl treadle events"


def _delivered(said: Mapping[str, Any]) -> str:
    requirement = said.get("requirement") or "None"
    count = _count(said.get("presented") or 0)
    return f"{count} files were presented; the requirement was {requirement}"
