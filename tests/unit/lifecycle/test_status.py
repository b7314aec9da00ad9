"""What a Run shows: phases, conditions, times, and that nothing is written twice."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.factories import (
    NOW,
    attempt_row,
    dead_pod,
    fresh,
    lease,
    pod,
    receipt,
    record,
    retried,
    run_object,
    settled,
    world,
)
from treadle_api.records import RunStatus
from treadle_api.run_status import RunObjectStatus
from treadle_operator.lifecycle.actions import DeleteLease, EmitEvent, RemoveFinalizer
from treadle_operator.lifecycle.run import decide_run
from treadle_operator.lifecycle.world import NO_LEASE, Problem, RunWorld, Waiting


def status(seen: RunWorld) -> dict[str, Any]:
    found = decide_run(seen).status
    assert found is not None
    return found


def reason(seen: RunWorld) -> tuple[str, str]:
    """Phase, and the reason of Succeeded: what `kubectl get runs` prints."""
    shown = RunObjectStatus.model_validate(status(seen))
    said = shown.condition("Succeeded")
    assert said is not None
    return str(shown.phase), said.reason


def after(seen: RunWorld, **changes: Any) -> RunWorld:
    """The same world later, with its status written."""
    return replace(seen, run=replace(seen.run, status=status(seen)), **changes)


assigned = world(record=record(RunStatus.ASSIGNED), lease=lease(holder=""))
refused_for_now = replace(assigned, pods=(), refused=Problem("PodCreationBackoff", "quota"))


def waiting_for(kubelet_reason: str, told: str = "denied") -> RunWorld:
    return replace(assigned, pods=(pod(waiting=Waiting(kubelet_reason, told)),))


@pytest.mark.parametrize(
    ("seen", "phase", "why"),
    [
        (fresh(thread=None), "Pending", "ThreadPending"),
        (fresh(agent=None), "Pending", "AgentPending"),
        (fresh(prepared=Problem("InputPending", "create it")), "Pending", "InputPending"),
        (fresh(thread=None, seen_for=600.0), "Failed", "ThreadNotFound"),
        (fresh(agent=None, seen_for=600.0), "Failed", "AgentNotFound"),
        (fresh(prepared=Problem("InputPending", "create it"), seen_for=600.0), "Failed", "InputUnavailable"),
        (fresh(run=run_object(template_agent="other")), "Failed", "ThreadMismatch"),
        (fresh(refused=Problem("QueueFull", "100 runs wait", True)), "Failed", "QueueFull"),
        (world(record=record(RunStatus.PENDING, queue_position=1), pods=()), "Queued", "ThreadBusy"),
        (assigned, "Starting", "Starting"),
        (waiting_for("ErrImagePull"), "Starting", "ImagePullBackOff"),
        (waiting_for("Unschedulable"), "Starting", "Unschedulable"),
        (waiting_for("CreateContainerConfigError"), "Starting", "ContainerConfigError"),
        (waiting_for("ContainerCreating"), "Starting", "Starting"),
        (replace(assigned, pods=(), agent=None), "Starting", "AgentPending"),
        (refused_for_now, "Starting", "PodCreationBackoff"),
        (world(), "Running", "Running"),
        (world(record=record(RunStatus.FINALIZING), record_for=2.0), "Finalizing", "Finalizing"),
        (world(pods=()), "Recovering", "LeaseNotExpired"),
        (world(pods=(dead_pod(1, dead_for=0),)), "Recovering", "RetryBackoff"),
        (world(lease=lease(silent_for=50.0)), "Recovering", "LeaseExpired"),
        (world(record=settled()), "Succeeded", "Delivered"),
        (world(record=settled(RunStatus.ERROR)), "Failed", "AgentError"),
        (world(record=settled(RunStatus.CANCELLED)), "Cancelled", "AgentError"),
        (world(record=record(RunStatus.ERROR)), "Finalizing", "ReceiptPending"),
        (world(record=record(RunStatus.ERROR), record_for=120.0), "Failed", "ReceiptMissing"),
    ],
)  # fmt: skip
def test_phase_and_reason_tell_what_is_seen(seen: RunWorld, phase: str, why: str) -> None:
    assert reason(seen) == (phase, why)


def test_a_running_run_shows_who_may_write() -> None:
    shown = status(world())
    assert shown["ownership"] == {
        "fencingToken": 7,
        "holder": "pod-uid-1/nonce",
        "leaseName": "run-11111111-1111-1111-1111-111111111111",
        "acquiredTime": "2026-03-01T12:00:00Z",
    }
    assert shown["pod"] == {"name": "review-a1", "uid": "pod-uid-1", "node": "node-1"}
    assert [c["type"] for c in shown["conditions"]] == ["Reconciling", "Admitted", "Owned", "Succeeded"]


def test_progress_alone_is_no_reason_to_write() -> None:
    before = after(world())
    moved = replace(
        before, record=record(checkpoint_id="c-2", checkpoint_step=9), now=NOW + timedelta(hours=1)
    )
    assert decide_run(moved).status == before.run.status
    assert decide_run(moved).actions == ()


def test_progress_rides_along_with_the_next_write() -> None:
    before = after(world())
    ended = replace(before, record=settled(checkpoint_id="c-9", checkpoint_step=9))
    assert status(ended)["checkpoint"] == {"id": "c-9", "step": 9}


def test_a_transition_time_moves_only_with_its_status() -> None:
    first = after(assigned)
    later = replace(first, record=record(), lease=lease(), now=NOW + timedelta(minutes=1))
    times = {c["type"]: c["lastTransitionTime"] for c in status(later)["conditions"]}
    assert times["Succeeded"] == times["Reconciling"] == "2026-03-01T12:00:00Z"
    assert times["Owned"] == "2026-03-01T12:01:00Z"


def test_the_next_attempt_time_stands_still_while_it_is_waited_for() -> None:
    first = after(world(record=retried(2), pods=(dead_pod(1, 3, dead_for=0.0),)))
    assert first.run.status["nextAttemptTime"] == "2026-03-01T12:00:20Z"
    later = replace(first, pods=(dead_pod(1, 3, dead_for=6.0),), now=NOW + timedelta(seconds=6.4))
    assert decide_run(later).status == first.run.status


def test_a_kubelet_that_changes_its_words_causes_no_write() -> None:
    first = after(waiting_for("ErrImagePull"))
    later = replace(first, pods=(pod(waiting=Waiting("ImagePullBackOff", "Back-off pulling image")),))
    assert decide_run(later).status == first.run.status


def test_an_ended_run_shows_its_receipt() -> None:
    proof = receipt(
        produced=["a.md", "b.md"],
        presented=["a.md"],
        matched=1,
        requirement="AtLeastOne",
        artifacts=[{"path": "a.md", "sha256": "a" * 64, "bytes": 12, "media_type": "text/markdown"}],
        usage={"input_tokens": 10, "output_tokens": 4},
        summary="Sales rose",
        message_id="m-1",
    )
    shown = status(
        world(record=record(RunStatus.SUCCESS, receipt=proof, ended_at=NOW + timedelta(seconds=94)))
    )
    assert shown["delivery"] == {
        "receiptID": "d" * 64,
        "verifiedTime": "2026-03-01T12:00:00Z",
        "requirement": "AtLeastOne",
        "produced": 2,
        "presented": 1,
        "matched": 1,
        "coverage": "True",
        "artifacts": [{"path": "a.md", "sha256": "a" * 64, "bytes": 12, "mediaType": "text/markdown"}],
    }
    assert shown["usage"] == {"inputTokens": 10, "outputTokens": 4}
    assert shown["result"] == {"summary": "Sales rose", "messageID": "m-1"}
    assert (shown["outcome"], shown["duration"]) == ("Success", "2m4s")
    RunObjectStatus.model_validate(shown)


@pytest.mark.parametrize(
    "payload",
    [
        {"produced": "many", "presented": None, "matched": -1},
        {"artifacts": [{"path": "x" * 300, "sha256": "a" * 64}, "what", {"path": "a"}]},
        {"artifacts": {"path": "a"}},
        {"usage": {"input_tokens": "many", "output_tokens": True}},
        {"usage": ["x"], "coverage": "x" * 100, "requirement": "Everything"},
        {"reason": "no reason at all", "message": "m" * 5000, "summary": "s" * 5000, "message_id": "i" * 500},
        {"model": "m" * 500},
    ],
)
def test_no_receipt_of_an_agent_can_make_the_status_unwritable(payload: dict[str, Any]) -> None:
    shown = status(world(record=record(RunStatus.SUCCESS, receipt=receipt(**payload))))
    assert RunObjectStatus.model_validate(shown).is_true("Succeeded")


def test_no_value_that_an_agent_left_in_the_store_can_make_the_status_unwritable() -> None:
    long = "x" * 400
    rows = (attempt_row(1, 7, reason="two words", pod_uid=long), attempt_row(2, 8, pod_uid=long))
    hostile = record(
        attempt=2,
        attempts=rows,
        holder=f"pod-uid-2/{long}",
        model=long,
        checkpoint_id=long,
        usage={"input_tokens": 2**70},
    )
    for seen in (world(record=hostile, pods=(pod(2),), lease=lease(2)), world(record=hostile, pods=())):
        RunObjectStatus.model_validate(status(seen))


def test_the_holder_of_the_next_run_is_not_shown_for_the_one_before() -> None:
    ended = settled(holder="pod-of-the-next/nonce", active_run="the next")
    assert "holder" not in status(world(record=ended))["ownership"]


def test_a_run_restored_without_its_status_gets_it_back_from_the_store() -> None:
    ended = world(record=settled())
    lost = replace(after(ended), run=run_object(status={}), pods=())
    assert status(lost)["delivery"]["receiptID"] == "d" * 64
    assert reason(lost) == ("Succeeded", "Delivered")
    running = world(run=run_object(status={"observedGeneration": -1}))
    assert reason(running) == ("Running", "Running")


def test_a_finished_run_that_lost_its_phase_gets_everything_back() -> None:
    ended = after(world(record=settled(), pods=()))
    kept = {k: v for k, v in ended.run.status.items() if k in ("conditions", "delivery", "completionTime")}
    assert status(replace(ended, run=replace(ended.run, status=kept))) == ended.run.status


def test_the_start_that_is_shown_again_is_the_one_that_was_shown_first() -> None:
    first = after(assigned)
    claimed = record(started_at=NOW + timedelta(seconds=2))
    again = replace(first, run=replace(first.run, status={}), record=claimed, lease=lease())
    assert status(again)["startTime"] == first.run.status["startTime"]


def test_a_store_that_was_failed_over_says_what_to_run() -> None:
    away = replace(after(world()), record=None, store_down_for=20.0, store_failed_over=True)
    assert reason(away) == ("Running", "StoreFailedOver")
    (said,) = [c for c in status(away)["conditions"] if c["type"] == "Succeeded"]
    assert "treadle-migrate fence-all" in said["message"]


def test_a_store_that_is_away_takes_no_fact_back() -> None:
    before = after(world())
    hiccup = replace(before, record=None, store_down_for=1.0)
    assert decide_run(hiccup).status is None
    away = replace(before, record=None, store_down_for=20.0)
    assert reason(away) == ("Running", "StoreUnavailable")
    assert status(away)["ownership"] == before.run.status["ownership"]
    back = replace(after(away), record=record(), store_down_for=None)
    assert reason(back) == ("Running", "Running")


def test_the_finalizer_goes_before_finished_is_shown_and_the_lease_after_the_pods() -> None:
    ended = world(record=settled())
    assert RemoveFinalizer() in decide_run(ended).actions
    shown = after(ended)
    free = replace(shown, run=replace(shown.run, finalizer=False), lease=lease())
    assert DeleteLease() not in decide_run(free).actions
    clean = replace(free, pods=())
    assert DeleteLease() in decide_run(clean).actions
    assert decide_run(replace(clean, lease=NO_LEASE)).actions == ()


def test_an_edit_of_a_finished_run_moves_the_observed_generation() -> None:
    ended = after(world(record=settled(), pods=()))
    edited = replace(ended, run=replace(ended.run, generation=2, finalizer=False))
    shown = status(edited)
    assert shown["observedGeneration"] == 2
    assert {c["observedGeneration"] for c in shown["conditions"]} == {2}
    assert {**shown, "observedGeneration": 1, "conditions": []} == {**ended.run.status, "conditions": []}


def test_that_a_run_starts_and_runs_is_one_event_unless_something_was_in_the_way() -> None:
    claimed = world()
    calm = replace(claimed, run=replace(claimed.run, status=status(assigned)))
    assert not any(isinstance(a, EmitEvent) for a in decide_run(calm).actions)
    again = replace(assigned, record=record(RunStatus.ASSIGNED, attempt=2), pods=(pod(attempt=2),))
    second = replace(
        claimed,
        record=record(attempt=2, holder="pod-uid-2/n"),
        pods=(pod(attempt=2),),
        lease=lease(holder="pod-uid-2/n", pod="review-a2"),
    )
    for before, runs in (
        (waiting_for("ImagePullBackOff"), claimed),
        (fresh(agent=None), claimed),
        (again, second),
    ):
        seen = replace(runs, run=replace(runs.run, status=status(before)))
        assert [a.reason for a in decide_run(seen).actions if isinstance(a, EmitEvent)] == ["Running"]


def test_events_tell_transitions_once() -> None:
    first = decide_run(assigned)
    assert [a for a in first.actions if isinstance(a, EmitEvent)] == [
        EmitEvent("Normal", "Starting", "Pod review-a1 is starting")
    ]
    assert not any(isinstance(a, EmitEvent) for a in decide_run(after(assigned)).actions)
    lost = decide_run(after(world(), lease=lease(silent_for=50.0)))
    assert [(a.type, a.reason) for a in lost.actions if isinstance(a, EmitEvent)] == [
        ("Warning", "LeaseExpired")
    ]
