"""`decide_thread` and `decide_agent`, row by row."""

from dataclasses import replace
from typing import Any

import pytest

from support.factories import NOW, THREAD
from treadle_api.agent import AgentObjectStatus
from treadle_api.records import FencingToken, ThreadID
from treadle_api.thread import ThreadObjectStatus
from treadle_operator.lifecycle.actions import (
    Action,
    AddFinalizer,
    EmitEvent,
    RegisterThread,
    RemoveFinalizer,
    RetireThread,
)
from treadle_operator.lifecycle.agent import decide_agent
from treadle_operator.lifecycle.thread import decide_thread
from treadle_operator.lifecycle.world import (
    ActiveRun,
    AgentWorld,
    Head,
    LastRun,
    Problem,
    ThreadFacts,
    ThreadWorld,
)

ROW = ThreadFacts(ThreadID("t"), FencingToken(7))
idle = ThreadWorld(THREAD, 1, NOW, finalizer=True, row=ROW)
deleting = replace(idle, thread=replace(THREAD, deleting=True))
erasing = replace(deleting, deletion_policy="Delete")


@pytest.mark.parametrize(
    ("seen", "actions"),
    [
        (replace(idle, row=None), (RegisterThread(THREAD),)),
        (replace(idle, row=None, finalizer=False), (AddFinalizer(), RegisterThread(THREAD))),
        (idle, ()),
        (replace(idle, row=None, store_down_for=9.0), ()),
        (replace(idle, row=None, conflict="other"), ()),
        (replace(deleting, finalizer=False), ()),
        (deleting, (RemoveFinalizer(),)),
        (replace(deleting, unfinished_runs=1), ()),
        (erasing, (RetireThread("sales"), RemoveFinalizer())),
        (replace(erasing, unfinished_runs=1), (RetireThread("sales"), RemoveFinalizer())),
        (replace(erasing, store_down_for=9.0, deleting_for=9.0), ()),
    ],
)
def test_a_thread_is_registered_kept_and_let_go(seen: ThreadWorld, actions: tuple[Action, ...]) -> None:
    decision = decide_thread(seen)
    assert decision.actions == actions
    if decision.status is not None:
        ThreadObjectStatus.model_validate(decision.status)


def test_a_thread_that_cannot_be_erased_goes_with_an_event() -> None:
    decision = decide_thread(replace(erasing, store_down_for=300.0, deleting_for=120.0))
    assert [type(action) for action in decision.actions] == [EmitEvent, RemoveFinalizer]


def test_a_thread_shows_what_the_store_knows() -> None:
    facts = replace(
        ROW,
        active=ActiveRun("review", "uid-1", 2),
        queued=3,
        head=Head("c-4", 4),
        last=LastRun("before", "cancelled", NOW),
    )
    decision = decide_thread(replace(idle, row=facts))
    assert decision.status is not None
    shown = ThreadObjectStatus.model_validate(decision.status)
    assert decision.status["threadID"] == "sales"
    assert shown.active_run is not None
    assert (shown.active_run.name, shown.queued_runs, shown.fencing_token) == ("review", 3, 7)
    assert decision.status["head"] == {"checkpointID": "c-4", "step": 4}
    assert shown.last_run is not None
    assert shown.last_run.outcome == "Cancelled"
    assert shown.is_true("Ready")
    assert shown.is_true("Busy")
    again = decide_thread(replace(idle, row=facts, status=decision.status))
    assert again.status == decision.status


def test_a_step_of_the_graph_alone_is_no_reason_to_write() -> None:
    first = replace(idle, row=replace(ROW, head=Head("c-1", 1)))
    before = decide_thread(first).status
    assert before is not None
    moved = replace(first, row=replace(ROW, head=Head("c-2", 2)), status=before)
    assert decide_thread(moved).status == before


def test_two_threads_with_one_id_stall_the_second() -> None:
    decision = decide_thread(replace(idle, row=None, conflict="other"))
    shown = ThreadObjectStatus.model_validate(decision.status)
    assert shown.is_true("Stalled")
    assert not shown.is_true("Reconciling")
    assert "Thread other" in shown.conditions[0].message


def test_a_token_in_the_status_never_falls() -> None:
    decision = decide_thread(replace(idle, status={"fencingToken": 9}))
    assert decision.status is not None
    assert decision.status["fencingToken"] == 9


AGENT = AgentWorld("team", "reviewer", 1, NOW, "treadle_runtime.graphs.lead:graph")


@pytest.mark.parametrize(
    ("changes", "ready", "reason", "told"),
    [
        ({}, "True", "Ready", "could start"),
        ({"graph": "no reference"}, "False", "ConfigurationInvalid", "module:attribute"),
        ({"problem": Problem("ConfigMapNotFound", "create p")}, "False", "ConfigMapNotFound", "create p"),
        ({"missing_secrets": ("keys/openai",)}, "False", "SecretNotFound", "keys/openai"),
        ({"schema_problem": "run treadle-migrate up"}, "False", "SchemaMismatch", "treadle-migrate up"),
        ({"store_down_for": 1.0}, "Unknown", "StoreUnavailable", "tried again"),
        ({"store_down_for": 1.0, "store_failed_over": True}, "False", "StoreFailedOver", "fence-all"),
    ],
)
def test_ready_is_checked_not_assumed(changes: dict[str, Any], ready: str, reason: str, told: str) -> None:
    seen = replace(AGENT, **changes)
    decision = decide_agent(seen)
    shown = AgentObjectStatus.model_validate(decision.status)
    found = shown.condition("Ready")
    assert found is not None
    assert (found.status, found.reason) == (ready, reason)
    assert told in found.message
    assert shown.is_true("Reconciling") is (ready != "True")
    assert decide_agent(replace(seen, status=decision.status or {})).status == decision.status
