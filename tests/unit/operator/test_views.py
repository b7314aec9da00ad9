"""From the API server's JSON to what the rules see."""

from typing import Any

import pytest

from treadle_api.names import LABEL_ATTEMPT
from treadle_operator.lifecycle.world import PodView, Terminated, Waiting
from treadle_operator.views import pod_facts, pod_view, run_object, thread_object


def pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ns",
            "name": "r-a2",
            "uid": "p2",
            "resourceVersion": "5",
            "labels": {LABEL_ATTEMPT: "2"},
            **metadata,
        },
        "spec": {"containers": [{"name": "agent"}], "nodeName": "n1"},
        "status": status,
    }


def seen(raw: dict[str, Any], age: float = 0.0) -> PodView:
    return pod_view(raw, lambda slot, value: age)


def container(**state: Any) -> dict[str, Any]:
    return {"name": "agent", "imageID": "img@sha256:1", "state": state}


def test_a_pod_without_status_is_alive_and_waits_for_nothing_known() -> None:
    view = seen(pod({}))
    assert (view.alive, view.attempt, view.waiting, view.terminated) == (True, 2, None, None)


@pytest.mark.parametrize(
    ("status", "waiting"),
    [
        (
            {"containerStatuses": [container(waiting={"reason": "ImagePullBackOff", "message": "no such"})]},
            Waiting("ImagePullBackOff", "no such", 7.0),
        ),
        ({"containerStatuses": [container(waiting={"reason": "ContainerCreating"})]}, None),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
            Waiting("Unschedulable", "", 7.0),
        ),
    ],
)
def test_what_keeps_a_pod_from_starting_is_the_kubelets_word(
    status: dict[str, Any], waiting: Waiting | None
) -> None:
    assert seen(pod({"phase": "Pending", **status}), age=7.0).waiting == waiting


def test_the_agents_last_words_are_a_line_of_json() -> None:
    message = 'noise\n{"reason": "GraphNotLoaded", "message": "no module named x"}\n'
    ended = {"exitCode": 78, "message": message}
    view = seen(pod({"phase": "Failed", "containerStatuses": [container(terminated=ended)]}), age=3.0)
    assert view.terminated == Terminated(78, "GraphNotLoaded", "no module named x")
    assert (view.alive, view.dead_for) == (False, 3.0)


@pytest.mark.parametrize("text", ["Killed", "[1, 2]", "{broken", "", None])
def test_last_words_that_are_no_json_are_kept_as_they_are(text: str | None) -> None:
    ended = {"exitCode": 137, "message": text}
    view = seen(pod({"phase": "Failed", "containerStatuses": [container(terminated=ended)]}))
    assert view.terminated is not None
    assert view.terminated.reason == ""
    assert view.terminated.message == (text or "")


def test_an_end_for_memory_is_seen_whatever_the_exit_code_says() -> None:
    ended = {"exitCode": 1, "reason": "OOMKilled"}
    view = seen(pod({"phase": "Failed", "containerStatuses": [container(terminated=ended)]}))
    assert view.terminated is not None
    assert view.terminated.oom


def test_a_disruption_is_read_from_the_condition_and_from_the_kubelets_reason() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    assert seen(pod({"conditions": [target]})).disruption == "EvictionByEvictionAPI"
    assert seen(pod({"phase": "Failed", "reason": "Evicted"})).disruption == "Evicted"
    assert seen(pod({"phase": "Failed", "reason": "Whatever"})).disruption == ""


def test_an_event_that_can_change_no_decision_changes_no_facts() -> None:
    before = pod({"phase": "Running", "containerStatuses": [container(running={})]})
    after = pod({"phase": "Running", "containerStatuses": [container(running={})], "podIP": "10.0.0.1"})
    assert pod_facts(before) == pod_facts(after)
    ended = pod({"phase": "Running", "containerStatuses": [container(terminated={"exitCode": 0})]})
    assert pod_facts(before) != pod_facts(ended)
    assert pod_facts(before) != pod_facts(pod(before["status"], deletionTimestamp="2026-08-01T00:00:00Z"))


def test_a_thread_without_a_thread_id_is_keyed_by_its_uid() -> None:
    raw = {"metadata": {"namespace": "ns", "name": "t", "uid": "u"}, "spec": {"agentRef": {"name": "a"}}}
    assert thread_object(raw).thread_key == "u"
    assert thread_object(raw).max_queued_runs == 100
    spec = {"agentRef": {"name": "a"}, "threadID": "sales", "maxQueuedRuns": 0}
    named = {**raw, "spec": spec}
    assert thread_object(named).thread_key == "sales"
    assert thread_object(named).max_queued_runs == 0


def test_a_run_is_read_with_what_it_leaves_out() -> None:
    raw = {
        "metadata": {
            "namespace": "ns",
            "name": "r",
            "uid": "u",
            "creationTimestamp": "2026-08-01T12:00:00Z",
            "deletionTimestamp": "2026-08-01T13:00:00Z",
            "finalizers": ["treadle.dev/settle"],
        },
        "spec": {"threadRef": {"name": "t"}, "threadTemplate": {"agentRef": {"name": "a"}}},
    }
    run = run_object(raw)
    assert (run.thread, run.template_agent, run.start_seconds) == ("t", "a", 600)
    assert run.finalizer
    assert run.deleting
    assert run.created.isoformat() == "2026-08-01T12:00:00+00:00"
