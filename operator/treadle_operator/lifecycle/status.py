"""The Run's whole status as a projection of the world: facts from the store, conditions from the rules.

Nothing is remembered here that the store does not know, except times of transitions. Every value that moves
often without telling anything new (`_RIDERS`) travels along with a write that is due for another reason and
never causes one: an undisturbed Run gets three writes (R96).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from treadle_api import names
from treadle_api.reasons import Reason
from treadle_api.records import AttemptRow, RunRecord
from treadle_api.run_status import Phase
from treadle_operator.lifecycle.actions import Status
from treadle_operator.lifecycle.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    set_condition,
    stamp,
    word,
)
from treadle_operator.lifecycle.world import PodView, RunWorld

Riders = tuple[tuple[str, ...], ...]
"""Paths in a status, of one or two names."""
_RIDERS: Riders = (
    ("agent",),
    ("checkpoint",),
    ("usage",),
    ("model",),
    ("queuePosition",),
    ("pod", "node"),
    ("attempts",),
)
_TEXT, _UID = 128, 36
"""Characters that the CRD takes. What an agent wrote into the store may be longer, and one value that the API
server refuses would keep the whole status from being written."""
_TIME_TOLERANCE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a rule wants people to read while the run is not finished."""

    phase: Phase
    reason: str
    message: str
    rejected: bool = False
    """Whether the Run cannot be admitted as things stand (Accepted=False)."""
    owned: tuple[str, str] | None = None
    """Status and reason of Owned; None: it says nothing."""
    delivered_pending: bool = False
    next_attempt: datetime | None = None


def unfinished(world: RunWorld, shown: Shown) -> Status:
    """The status of a Run that goes on: Reconciling is True in every phase, or kstatus would say Current."""
    status = facts(world)
    status["phase"] = shown.phase.value
    if shown.next_attempt is not None:
        status["nextAttemptTime"] = _steady(world.run.status.get("nextAttemptTime"), shown.next_attempt)
    says = Conditions(world)
    says.add("Reconciling", TRUE, shown.reason, shown.message)
    if shown.rejected:
        says.add("Accepted", FALSE, shown.reason, shown.message)
    if world.record is not None:
        says.add("Admitted", TRUE, Reason.ADMITTED, "The store holds the run with its input and files")
    if shown.owned is not None:
        says.add("Owned", *shown.owned, shown.message)
    if shown.delivered_pending:
        says.add("Delivered", UNKNOWN, Reason.RECEIPT_PENDING, shown.message)
    says.add("Succeeded", UNKNOWN, shown.reason, shown.message)
    status["conditions"] = says.all
    return carry(world.run.status, status)


def overlaid(world: RunWorld, reason: str, message: str) -> Status:
    """What stands, with why nothing moves: for passes that could not ask the store. No fact is taken back."""
    status: Status = {k: v for k, v in world.run.status.items() if k != "conditions"}
    status["observedGeneration"] = world.run.generation
    status.setdefault("phase", Phase.PENDING.value)
    says = Conditions(world)
    standing = world.run.status.get("conditions", ())
    for kind in ("Reconciling", "Succeeded"):
        says.add(kind, TRUE if kind == "Reconciling" else UNKNOWN, reason, message)
    rest = [dict(c) for c in standing if c.get("type") not in ("Reconciling", "Succeeded", "Stalled")]
    status["conditions"] = [says.all[0], *rest, says.all[1]]
    return status


class Conditions:
    """Collects conditions in the order in which kstatus and people read them."""

    def __init__(self, world: RunWorld) -> None:
        self._world = world
        self.all: list[Condition] = []

    def add(self, kind: str, status: str, reason: str, message: str) -> None:
        self.all.append(
            set_condition(
                self._world.run.status.get("conditions", ()),
                kind,
                status,
                str(reason),
                message,
                now=self._world.now,
                generation=self._world.run.generation,
            )
        )


def facts(world: RunWorld) -> Status:
    """Everything that is not a judgement."""
    run, record, before = world.run, world.record, world.run.status
    status: Status = {"observedGeneration": run.generation}
    if record is None:
        return status
    status["specHash"] = record.spec_hash
    status["stream"] = {"key": names.stream_key(run.namespace, record.thread_id, record.log)}
    pod = current_pod(world)
    if world.agent is not None:
        status["agent"] = {"name": world.agent.name, "generation": world.agent.generation}
        image = pod.image_id if pod is not None else ""
        image = image or before.get("agent", {}).get("imageID", "")
        if image:
            status["agent"]["imageID"] = image
    elif "agent" in before:
        status["agent"] = before["agent"]
    if record.queue_position > 0:
        status["queuePosition"] = record.queue_position
    if record.attempt == 0:
        return status
    status["startTime"] = before.get("startTime") or stamp(_started(record) or world.now)
    status["attempt"] = record.attempt
    if record.disruptions:
        status["disruptions"] = record.disruptions
    status["ownership"] = _ownership(world, record)
    status["pod"] = _pod(record, pod)
    if record.checkpoint_id is not None:
        status["checkpoint"] = {"id": record.checkpoint_id[:_TEXT]}
        if record.checkpoint_step is not None:
            status["checkpoint"]["step"] = record.checkpoint_step
    if record.usage:
        status["usage"] = usage(record.usage)
    if record.model:
        status["model"] = record.model[:_TEXT]
    status["attempts"] = [_attempt(row) for row in record.attempts[-10:]]
    return status


def current_pod(world: RunWorld) -> PodView | None:
    """The pod of the newest attempt; a living one where a namesake still lingers."""
    if world.record is None:
        return None
    mine = [p for p in world.pods if p.attempt == world.record.attempt]
    return next((p for p in mine if p.alive), mine[-1] if mine else None)


def _started(record: RunRecord) -> datetime | None:
    """When the first attempt was assigned: shown from then on, and again by a status that was lost."""
    if record.attempts and record.attempts[0].attempt == 1:
        return record.attempts[0].started
    return record.started_at


def _ownership(world: RunWorld, record: RunRecord) -> Status:
    before = world.run.status.get("ownership", {})
    token = max(int(record.token), int(before.get("fencingToken", 0)))
    shown: Status = {"fencingToken": token, "leaseName": names.lease_name(record.run_id)}
    if record.holder and record.active_run == record.run_id:
        shown["holder"] = record.holder[:_TEXT]
        same = before.get("holder") == shown["holder"] and "acquiredTime" in before
        shown["acquiredTime"] = before["acquiredTime"] if same else stamp(world.now)
    elif record.status.terminal and "holder" in before:
        shown["holder"], shown["acquiredTime"] = before["holder"], before.get("acquiredTime")
    return {k: v for k, v in shown.items() if v is not None}


def _pod(record: RunRecord, pod: PodView | None) -> Status:
    row = record.attempts[-1] if record.attempts else None
    name = pod.name if pod is not None else (row.pod if row else names.pod_name(record.name, record.attempt))
    uid = pod.uid if pod is not None else (row.pod_uid if row else None)
    node = (pod.node if pod is not None else "") or (row.node if row else None)
    shown: Status = {"name": name}
    if uid:
        shown["uid"] = uid[:_UID]
    if node:
        shown["node"] = node
    return shown


def _attempt(row: AttemptRow) -> Status:
    shown: Status = {
        "attempt": row.attempt,
        "podName": row.pod,
        "fencingToken": int(row.token),
        "startTime": stamp(row.started),
    }
    if row.node:
        shown["node"] = row.node
    if row.ended is not None:
        shown["endTime"] = stamp(row.ended)
    if row.loss is not None:
        shown["loss"] = row.loss.value.capitalize()
    reason = word(row.reason, "")
    if reason:
        shown["reason"] = reason
    return shown


_USAGE = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "model_calls": "modelCalls",
    "tool_calls": "toolCalls",
}


def usage(counted: Mapping[str, Any]) -> Status:
    """The store's usage in the API's spelling."""
    return {api: counted[own] for own, api in _USAGE.items() if _natural(counted.get(own))}


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def carry(before: Mapping[str, Any], after: Status, riders: Riders = _RIDERS) -> Status:
    """`after`, or what stands where only riders differ: they wait for the next write."""
    if before == after:
        return after
    if before and _without(riders, before) == _without(riders, after):
        return dict(before)
    return after


def _without(riders: Riders, status: Mapping[str, Any]) -> Status:
    bare = {key: dict(value) if isinstance(value, Mapping) else value for key, value in status.items()}
    for path in riders:
        if len(path) == 1:
            bare.pop(path[0], None)
        elif isinstance(bare.get(path[0]), dict):
            bare[path[0]].pop(path[1], None)
    return bare


def _steady(before: str | None, wanted: datetime) -> str:
    """The time that stands, unless the wanted one is really another."""
    if before is not None and abs(datetime.fromisoformat(before) - wanted) < _TIME_TOLERANCE:
        return before
    return stamp(wanted)


def duration(seconds: float) -> str:
    """`2m4s`, `1h0m3s`, as kubectl writes durations."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{secs}s"
    return f"{minutes}m{secs}s" if minutes else f"{secs}s"
