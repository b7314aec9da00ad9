"""How a run ends that does not end well: a named reason, a message with the next step, no lost data."""

from typing import Any

import pytest

from support.agent_process import Harness
from support.runs import check_the_log
from support.scripts import NOTES, call, configuration, review
from treadle_api.contract import ENV_POD_KEY, ExitCode
from treadle_api.reasons import Reason
from treadle_api.records import Json
from treadle_store import runs

HELLO: list[Json] = [{"text": "hello"}]


def with_model(**model: Any) -> Json:
    return configuration(HELLO, model=model)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("config", "reason", "says"),
    [
        (configuration(HELLO, graph="no_such_module:graph"), Reason.GRAPH_NOT_LOADED, "no_such_module"),
        (
            configuration(HELLO, graph="support.user_graphs:unbuildable"),
            Reason.GRAPH_NOT_LOADED,
            "RuntimeError: no licence",
        ),
        (with_model(script=None), Reason.CONFIGURATION_INVALID, "scriptConfigMapKeyRef"),
        (with_model(provider="nobody"), Reason.CONFIGURATION_INVALID, "nobody"),
        (configuration(HELLO, tools=["fly"]), Reason.CONFIGURATION_INVALID, "no built-in tool fly"),
    ],
    ids=["no module", "factory raises", "no script", "no provider", "no tool"],
)
async def test_what_cannot_be_executed_says_why_and_asks_for_no_other_attempt(
    harness: Harness, config: Json, reason: Reason, says: str
) -> None:
    run = await harness.admit(config)
    pod = await harness.attempt(run)
    assert await pod.ended() == ExitCode.CONFIGURATION, pod.log
    assert pod.termination["reason"] == reason
    assert says in pod.termination["message"]
    assert await harness.receipt(run) is None


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("config", "reason", "says"),
    [
        (
            configuration([{"text": "a"}, {"text": "b"}], graph="support.user_graphs:failing"),
            Reason.AGENT_ERROR,
            "KeyError: 'amount'",
        ),
        (configuration(HELLO, graph="support.user_graphs:asking"), Reason.AGENT_ERROR, "waits for an answer"),
        (
            configuration(HELLO, graph="support.user_graphs:looping", recursion_limit=5),
            Reason.RECURSION_LIMIT,
            "recursionLimit",
        ),
        (configuration([{"fail": {"status": 401}}]), Reason.MODEL_REJECTED, "credentials"),
        (configuration([{"fail": {"status": 429}}]), Reason.MODEL_UNAVAILABLE, "quota"),
        (
            configuration(HELLO, delivery={"requirement": "AtLeastOne", "artifacts": ["*.md"]}),
            Reason.COVERAGE_FAILED,
            "missing *.md",
        ),
    ],
    ids=["node raises", "interrupt", "recursion", "401", "429", "coverage"],
)
async def test_a_run_that_failed_has_a_receipt_that_says_why(
    harness: Harness, config: Json, reason: Reason, says: str
) -> None:
    run = await harness.admit(config)
    pod = await harness.attempt(run)
    assert await pod.ended() == ExitCode.ANSWERED, pod.log
    receipt = (await harness.settled(run)).payload
    assert (receipt["outcome"], receipt["reason"]) == ("error", reason)
    assert says in receipt["message"]
    assert receipt["coverage"] != "True"


@pytest.mark.timeout(120)
async def test_the_model_is_told_of_a_limit_and_the_run_goes_on(harness: Harness) -> None:
    script: list[Json] = [
        {"tool_calls": [call("big", "write_file", path="big.txt", content="x" * 200)]},
        {"text": "{{ results.big }}"},
    ]
    limits = {"max_bytes": 100, "max_file_bytes": 100, "max_files": 10}
    run = await harness.admit(configuration(script, workspace=limits))
    assert await harness.drive(run) == 1
    receipt = (await harness.settled(run)).payload
    assert receipt["outcome"] == "success"
    assert "workspace.maxFileBytes allows 100" in receipt["summary"]
    kinds = [event.type for event in await harness.log(run)]
    assert "tool.error" in kinds


@pytest.mark.timeout(120)
@pytest.mark.req("R57")
async def test_a_graph_of_ones_own_is_journalled_through_callbacks_alone(harness: Harness) -> None:
    run = await harness.admit(configuration(HELLO, graph="support.user_graphs:parallel"))
    assert await harness.drive(run) == 1
    state = await harness.state(run)
    assert state["seen"] == ["sync hello", "async hello", "HI"]
    kinds = [event.type for event in await harness.log(run)]
    assert kinds.count("model.request") == kinds.count("model.response") == 2
    assert kinds.count("tool.intent") == kinds.count("tool.result") == 1
    assert (await harness.settled(run)).payload["usage"]["model_calls"] == 2


@pytest.mark.timeout(120)
@pytest.mark.req("R15", "R84")
async def test_a_later_run_in_another_pod_sees_messages_plan_and_files_of_the_earlier(
    harness: Harness,
) -> None:
    first = await harness.admit(configuration(review()), files=NOTES)
    assert await harness.drive(first) == 1
    script: list[Json] = [
        {"tool_calls": [call("again", "read_file", path="review.md")]},
        {"text": "{{ results.again }}"},
    ]
    second = await harness.admit(configuration(script, count="turn"), text="and now?", thread=first.thread_id)
    assert await harness.drive(second) == 1
    receipt = (await harness.settled(second)).payload
    assert "| 2026-02 | 1650 | +150 | +10.0 |" in receipt["summary"]
    assert receipt["reason"] == Reason.NOTHING_TO_DELIVER, (
        "what the first run presented is not presented again"
    )
    assert receipt["produced"] == []
    state = await harness.state(second)
    assert [m.content for m in state["messages"] if m.type == "human"] == ["go", "and now?"]
    assert state["artifacts"] == ["review.md"]
    log = await harness.log(second)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))


@pytest.mark.timeout(120)
async def test_a_cancel_stops_the_run_at_a_step_and_keeps_its_checkpoint(harness: Harness) -> None:
    run = await harness.admit(configuration(review(sleep=2.0)), files=NOTES)
    pod = await harness.attempt(run)
    await harness.log_has(run, "todo")
    await runs.request_cancel(harness.operator, run.run_id, "Graceful", "by the test")
    assert await pod.ended() == ExitCode.ANSWERED, pod.log
    receipt = (await harness.settled(run)).payload
    assert (receipt["outcome"], receipt["reason"]) == ("cancelled", Reason.CANCELLED)
    assert (await harness.state(run))["todos"]
    await check_the_log(harness, run)


@pytest.mark.timeout(120)
async def test_an_orphaned_agent_stops_by_itself(harness: Harness) -> None:
    run = await harness.admit(configuration([{"hang": True}], graph="support.user_graphs:swallowing"))
    pod = await harness.attempt(run)
    await harness.log_has(run, "run.start")
    agent = pod.agent()
    assert agent is not None
    pod.kill("keeper")
    await harness.agent_gone(agent)
    assert await harness.receipt(run) is None


@pytest.mark.timeout(120)
async def test_a_pod_without_its_key_or_with_another_gets_nothing(harness: Harness) -> None:
    run = await harness.admit(configuration(HELLO))
    assigned = await harness.assign(run)
    nothing = await harness.start(assigned, environment={ENV_POD_KEY: ""})
    assert await nothing.ended() == ExitCode.CONFIGURATION
    assert ENV_POD_KEY in nothing.termination["message"]
    wrong = {ENV_POD_KEY: "guessed", "TREADLE_ASSIGNMENT_SECONDS": "1"}
    assert await (await harness.start(assigned, environment=wrong)).ended() == ExitCode.TRY_AGAIN
