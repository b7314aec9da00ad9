"""Statuses that the API server allows or refuses, alone or over another one, as data."""

from dataclasses import dataclass
from typing import Any

from support.api_objects import ABSENT, Object, merged

TIME = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:05:05Z"


def condition(type_: str, status: str, reason: str = "Because", **more: Any) -> Object:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": "A sentence.",
        "lastTransitionTime": TIME,
        **more,
    }


def status(*conditions: Object, **fields: Any) -> Object:
    return {"observedGeneration": 1, **({"conditions": list(conditions)} if conditions else {}), **fields}


RUNNING = status(
    condition("Reconciling", "True"),
    condition("Succeeded", "Unknown"),
    phase="Running",
    ownership={"fencingToken": 3, "holder": "uid/nonce", "leaseName": "run-x", "acquiredTime": TIME},
)
SUCCESS = status(
    condition("Delivered", "True", "Delivered"),
    condition("Finished", "True", "Delivered"),
    condition("Succeeded", "True", "Delivered"),
    phase="Succeeded",
    outcome="Success",
    startTime=TIME,
    completionTime=LATER,
    duration="1m0s",
    ownership={"fencingToken": 3},
    delivery={
        "receiptID": "sha256:0a",
        "requirement": "All",
        "produced": 2,
        "presented": 1,
        "matched": 1,
        "coverage": "True",
        "artifacts": [{"path": "a.md", "sha256": "0" * 64, "bytes": 3, "mediaType": "text/markdown"}],
        "verifiedTime": LATER,
    },
)
FAILURE = status(
    condition("Stalled", "True", "AgentError"),
    condition("Finished", "True", "AgentError"),
    condition("Succeeded", "False", "AgentError"),
    phase="Failed",
    outcome="Error",
    completionTime=LATER,
)
_FROZEN = "status.conditions: Invalid value: the outcome is frozen once the run ended"
_NEEDS_RECEIPT = "status.conditions: Invalid value: Succeeded=True needs delivery.receiptID"
_NEEDS_TIME = "status.conditions: Invalid value: Finished=True and Succeeded=True need completionTime"
_WHOLE_END = "status.conditions: Invalid value: completionTime needs Finished=True"
_TOKEN = "the fencing token never falls and is never removed"


@dataclass(frozen=True)
class StatusCase:
    """A status that is written over another one. `alone`: the models see the fault without the one before."""

    sentence: str
    after: Object
    deny: str | None = None
    before: Object | None = None
    alone: bool = True
    kind: str = "Run"

    def __str__(self) -> str:
        return self.sentence


def _over(
    before: Object, sentence: str, deny: str | None, *, alone: bool = False, **changes: Any
) -> StatusCase:
    return StatusCase(sentence, merged(before, changes), deny, before, alone)


STATUS: tuple[StatusCase, ...] = (
    StatusCase("a running run", RUNNING),
    StatusCase("a success with its receipt", SUCCESS, before=RUNNING),
    StatusCase("a failure without a receipt", FAILURE, before=status(phase="Pending")),
    StatusCase("a success at once, as after a restore", SUCCESS),
    StatusCase("a success without a receipt", merged(SUCCESS, {"delivery": ABSENT}), _NEEDS_RECEIPT),
    StatusCase(
        "a success whose receipt has no id",
        merged(SUCCESS, {"delivery": {"receiptID": ABSENT}}),
        _NEEDS_RECEIPT,
    ),
    StatusCase(
        "a success whose receipt has an empty id",
        merged(SUCCESS, {"delivery": {"receiptID": ""}}),
        "status.delivery.receiptID",
    ),
    StatusCase(
        "a success that is not finished",
        merged(SUCCESS, {"conditions": [condition("Succeeded", "True")]}),
        _WHOLE_END,
    ),
    StatusCase("a success without its time", merged(SUCCESS, {"completionTime": ABSENT}), _NEEDS_TIME),
    StatusCase("a success and nothing else", status(condition("Succeeded", "True")), _NEEDS_TIME),
    StatusCase("a failure without its time", merged(FAILURE, {"completionTime": ABSENT}), _NEEDS_TIME),
    StatusCase("an end that only its time tells", status(completionTime=LATER), _WHOLE_END),
    StatusCase(
        "an end without an outcome",
        status(condition("Finished", "True"), condition("Succeeded", "Unknown"), completionTime=LATER),
        _WHOLE_END,
    ),
    StatusCase(
        "an end that says nothing of success",
        status(condition("Finished", "True"), completionTime=LATER),
        _WHOLE_END,
    ),
    StatusCase(
        "stalled and reconciling",
        status(condition("Stalled", "True"), condition("Reconciling", "True")),
        "status.conditions: Invalid value: Stalled and Reconciling cannot both be True",
    ),
    StatusCase("no longer stalled", status(condition("Stalled", "False"), condition("Reconciling", "True"))),
    StatusCase(
        "a condition twice",
        status(condition("Owned", "True"), condition("Owned", "False")),
        "status.conditions[1]: Duplicate value",
    ),
    StatusCase(
        "17 conditions", status(*(condition(f"C{i}", "True") for i in range(17))), "status.conditions"
    ),
    StatusCase(
        "a condition with an empty message",
        status(condition("Owned", "True", message="")),
        "conditions[0].message",
    ),
    StatusCase(
        "a condition with a long message",
        status(condition("Owned", "True", message="m" * 513)),
        "status.conditions[0].message: Too long",
    ),
    StatusCase(
        "a reason in two words",
        status(condition("Owned", "True", "Not Good")),
        "status.conditions[0].reason: Invalid value: … use one CamelCase word",
    ),
    StatusCase("a reason of a newer operator", status(condition("Owned", "True", "NotYetKnown"))),
    StatusCase(
        "a condition that is neither", status(condition("Owned", "Maybe")), "status.conditions[0].status"
    ),
    StatusCase("an unknown phase", status(phase="Done"), 'status.phase: Unsupported value: "Done"'),
    StatusCase("a token below zero", status(ownership={"fencingToken": -1}), "status.ownership.fencingToken"),
    StatusCase(
        "a token that JSON cannot hold",
        status(ownership={"fencingToken": 2**53}),
        "status.ownership.fencingToken",
    ),
    StatusCase(
        "a digest in capitals",
        status(delivery={"artifacts": [{"path": "a", "sha256": "A" * 64}]}),
        "status.delivery.artifacts[0].sha256: Invalid value: … use the 64 lower-case hex digits",
    ),
    StatusCase(
        "11 attempts", status(attempts=[{"attempt": i} for i in range(1, 12)]), "status.attempts: Too many"
    ),
    _over(RUNNING, "a higher token", None, ownership={"fencingToken": 4}),
    _over(
        RUNNING,
        "a lower token",
        f"status.ownership.fencingToken: Invalid value: … {_TOKEN}",
        ownership={"fencingToken": 2},
    ),
    _over(
        RUNNING,
        "a token that goes",
        f"status.ownership.fencingToken: Invalid value: {_TOKEN}",
        ownership={"fencingToken": ABSENT},
    ),
    _over(RUNNING, "an owner that goes", f"status.ownership: Invalid value: {_TOKEN}", ownership=ABSENT),
    StatusCase("a status that goes", {}, f"status.ownership: Invalid value: {_TOKEN}", RUNNING, alone=False),
    _over(
        SUCCESS,
        "the end is taken back",
        _WHOLE_END,
        alone=True,
        conditions=[condition("Reconciling", "True")],
    ),
    _over(
        SUCCESS,
        "the end is taken back with its time",
        "status.completionTime: Invalid value: completionTime is set once",
        conditions=[condition("Reconciling", "True")],
        completionTime=ABSENT,
    ),
    _over(
        SUCCESS,
        "the end becomes false",
        _WHOLE_END,
        alone=True,
        conditions=[condition("Finished", "False"), condition("Succeeded", "Unknown")],
    ),
    _over(
        SUCCESS,
        "success turns into failure",
        _FROZEN,
        conditions=[condition("Finished", "True"), condition("Succeeded", "False", "Delivered")],
    ),
    _over(
        FAILURE,
        "failure turns into success",
        _FROZEN,
        conditions=SUCCESS["conditions"],
        delivery=SUCCESS["delivery"],
        outcome=ABSENT,
    ),
    _over(
        SUCCESS,
        "the reason of success changes",
        _FROZEN,
        conditions=[condition("Finished", "True"), condition("Succeeded", "True", "Other")],
    ),
    _over(
        SUCCESS,
        "the outcome changes",
        "status.outcome: Invalid value: … outcome is set once",
        outcome="Error",
    ),
    _over(SUCCESS, "the outcome goes", "status.outcome: Invalid value: outcome is set once", outcome=ABSENT),
    _over(
        SUCCESS,
        "the receipt goes",
        "status.delivery: Invalid value: delivery is kept once it is set",
        alone=True,
        delivery=ABSENT,
    ),
    _over(
        SUCCESS,
        "the receipt changes",
        "status.delivery.receiptID: Invalid value: … receiptID is set once",
        delivery={"receiptID": "sha256:ff"},
    ),
    _over(
        SUCCESS,
        "the time of the end changes",
        "status.completionTime: Invalid value: … completionTime is set once",
        completionTime=TIME,
    ),
    _over(SUCCESS, "the newest generation is said after the end", None, observedGeneration=2),
    StatusCase(
        "a thread that is ready",
        status(
            condition("Ready", "True"),
            threadID="x",
            queuedRuns=2,
            fencingToken=1,
            activeRun={"name": "r", "uid": "u", "attempt": 1},
            head={"checkpointID": "c", "step": 3},
            lastRun={"name": "q", "outcome": "Success", "time": TIME},
        ),
        kind="Thread",
    ),
    StatusCase(
        "a thread with a lower token",
        status(fencingToken=1),
        f"status.fencingToken: Invalid value: … {_TOKEN}",
        status(fencingToken=2),
        alone=False,
        kind="Thread",
    ),
    StatusCase(
        "a thread whose status goes",
        {},
        f"status.fencingToken: Invalid value: {_TOKEN}",
        status(fencingToken=2),
        alone=False,
        kind="Thread",
    ),
    StatusCase(
        "a thread with an unknown outcome",
        status(lastRun={"name": "q", "outcome": "success"}),
        "status.lastRun.outcome: Unsupported value",
        kind="Thread",
    ),
    StatusCase("an agent that is ready", status(condition("Ready", "True")), kind="Agent"),
    StatusCase(
        "an agent that is stalled and reconciling",
        status(condition("Stalled", "True"), condition("Reconciling", "True")),
        "status.conditions: Invalid value: Stalled and Reconciling cannot both be True",
        kind="Agent",
    ),
)
