"""From the API server's JSON to the plain values that the rules see. Pure."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from treadle_api.names import FINALIZER, LABEL_ATTEMPT
from treadle_api.records import Json
from treadle_operator.cache import key_of_thread, thread_of_run, uid
from treadle_operator.leases import LeaseObservation
from treadle_operator.lifecycle.starting import trouble
from treadle_operator.lifecycle.world import (
    LeaseView,
    PodView,
    RunObject,
    Terminated,
    ThreadObject,
    Waiting,
)

_KUBELET_DISRUPTIONS = frozenset({"Evicted", "Preempting", "NodeShutdown", "NodeLost", "Shutdown"})
_ENDED = frozenset({"Succeeded", "Failed"})
_NOT_TROUBLE = frozenset({"ContainerCreating", "PodInitializing"})


def run_object(raw: Json) -> RunObject:
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    template = spec.get("threadTemplate") or {}
    start = (spec.get("timeouts") or {}).get("startSeconds")
    return RunObject(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=uid(raw),
        generation=int(metadata.get("generation") or 0),
        created=instant(metadata.get("creationTimestamp")),
        thread=thread_of_run(raw),
        template_agent=(template.get("agentRef") or {}).get("name"),
        **({"start_seconds": int(start)} if start is not None else {}),
        finalizer=FINALIZER in (metadata.get("finalizers") or ()),
        deleting=metadata.get("deletionTimestamp") is not None,
        status=raw.get("status") or {},
    )


def thread_object(raw: Json) -> ThreadObject:
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    return ThreadObject(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=uid(raw),
        agent=(spec.get("agentRef") or {}).get("name", ""),
        thread_key=key_of_thread(raw),
        max_queued_runs=int(queued) if (queued := spec.get("maxQueuedRuns")) is not None else 100,
        deleting=metadata.get("deletionTimestamp") is not None,
    )


def owned_by(raw: Json, run_uid: str) -> bool:
    return any(owner.get("uid") == run_uid for owner in raw["metadata"].get("ownerReferences") or ())


def pod_view(raw: Json, seen_for: Callable[[str, object], float]) -> PodView:
    """`seen_for(slot, value)`: seconds since `slot` first had `value`, by the operator's clock."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    statuses = status.get("containerStatuses") or []
    phase = str(status.get("phase") or "Pending")
    alive = _alive(phase, raw, statuses)
    name = metadata["name"]
    waiting = _waiting(status, statuses) if alive else None
    held = seen_for(f"waiting/{name}", trouble(waiting[0]) if waiting else None)
    dead = seen_for(f"alive/{uid(raw)}", alive)
    return PodView(
        name=name,
        uid=uid(raw),
        attempt=_number((metadata.get("labels") or {}).get(LABEL_ATTEMPT)),
        phase=phase,
        alive=alive,
        terminated=None if alive else _terminated(statuses),
        waiting=Waiting(*waiting, seen_for=held) if waiting else None,
        disruption=_disruption(status),
        deleting=metadata.get("deletionTimestamp") is not None,
        node=str((raw.get("spec") or {}).get("nodeName") or ""),
        image_id=str(statuses[0].get("imageID") or "") if statuses else "",
        dead_for=0.0 if alive else dead,
    )


def lease_view(seen: LeaseObservation | None, gone_for: float) -> LeaseView:
    """`gone_for`: seconds since the operator first saw that there is none."""
    if seen is None:
        return LeaseView(exists=False, silent_for=gone_for)
    return LeaseView(exists=True, holder=seen.holder, pod=seen.pod, silent_for=seen.silent)


def instant(text: str | None) -> datetime:
    """A time of the API server; the beginning of time where there is none."""
    if not text:
        return datetime.fromtimestamp(0, UTC)
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _alive(phase: str, raw: Json, statuses: list[Json]) -> bool:
    if phase in _ENDED:
        return False
    expected = len((raw.get("spec") or {}).get("containers") or ())
    ended = [s for s in statuses if (s.get("state") or {}).get("terminated")]
    return not ended or len(ended) < expected


def _terminated(statuses: Iterable[Json]) -> Terminated | None:
    ends = [end for s in statuses if (end := (s.get("state") or {}).get("terminated"))]
    if not ends:
        return None
    oom = any(end.get("reason") == "OOMKilled" for end in ends)
    reason, message = _last_words(ends[0].get("message"))
    return Terminated(exit_code=int(ends[0].get("exitCode", -1)), reason=reason, message=message, oom=oom)


def _last_words(text: str | None) -> tuple[str, str]:
    """Reason and message of the termination message: one JSON line of the agent, else the text itself."""
    if not text:
        return "", ""
    try:
        said: Any = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return "", text[:512]
    return str(said.get("reason") or "")[:63], str(said.get("message") or "")[:512]


def _waiting(status: Json, statuses: Iterable[Json]) -> tuple[str, str] | None:
    for container in statuses:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in _NOT_TROUBLE:
            return str(waiting["reason"]), str(waiting.get("message") or "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason") or "Unschedulable"), str(condition.get("message") or "")
    return None


def _disruption(status: Json) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return str(condition.get("reason") or "DisruptionTarget")
    reason = str(status.get("reason") or "")
    return reason if reason in _KUBELET_DISRUPTIONS else ""


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def pod_facts(raw: Json) -> tuple[object, ...]:
    """What of a pod can change a decision; events that change nothing of it wake nobody."""
    status = raw.get("status") or {}
    statuses = status.get("containerStatuses") or []
    waiting = _waiting(status, statuses)
    return (
        status.get("phase") in _ENDED,
        trouble(waiting[0]) if waiting else None,
        _terminated(statuses),
        _disruption(status),
        raw["metadata"].get("deletionTimestamp"),
    )
