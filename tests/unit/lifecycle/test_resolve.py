"""Run > Agent > built-in, and every way in which it does not fit together."""

from typing import Any

import pytest

from treadle_api.agent import AgentSpec
from treadle_api.contract import INPUT_BYTES_LIMIT
from treadle_api.reasons import Reason
from treadle_api.resolved import ResolvedRun
from treadle_api.run import RunSpec
from treadle_operator.lifecycle.resolve import Contents, check_agent, prepare, references, spec_hash
from treadle_operator.lifecycle.world import Prepared, Problem

SCRIPT: dict[tuple[str, str], str | bytes] = {("script", "a.yaml"): "say: hello"}
ALL = {"runDefaults": {"delivery": {"requirement": "All", "artifacts": ["*"]}}}


def run_spec(**fields: Any) -> RunSpec:
    return RunSpec.model_validate({"threadRef": {"name": "sales"}, "input": {"text": "Hello"}, **fields})


def agent_spec(**fields: Any) -> AgentSpec:
    model = {"provider": "scripted", "scriptConfigMapKeyRef": {"name": "script", "key": "a.yaml"}}
    return AgentSpec.model_validate({"model": model, **fields})


def openai(**fields: Any) -> AgentSpec:
    return AgentSpec.model_validate({"model": {"provider": "openai", "name": "gpt", **fields}})


def prepared(run: RunSpec, agent: AgentSpec, contents: Contents = SCRIPT) -> tuple[Prepared, ResolvedRun]:
    found = prepare(run, agent, contents)
    assert isinstance(found, Prepared), found
    return found, ResolvedRun.model_validate(found.config)


def problem(run: RunSpec, agent: AgentSpec, contents: Contents = SCRIPT) -> Problem:
    found = prepare(run, agent, contents)
    assert isinstance(found, Problem), found
    return found


def test_what_nobody_says_is_built_in() -> None:
    _, settings = prepared(run_spec(), agent_spec())
    assert settings.retry == ResolvedRun().retry
    assert settings.timeouts == ResolvedRun().timeouts
    assert settings.tools == ResolvedRun().tools
    assert settings.graph == ResolvedRun().graph
    assert settings.model.script == "say: hello"


def test_the_run_wins_over_the_agent_field_by_field() -> None:
    agent = agent_spec(
        runDefaults={
            "retry": {"backoffLimit": 7, "backoffSeconds": 2},
            "timeouts": {"startSeconds": 30},
            "config": {"recursionLimit": 50, "configurable": {"tone": "dry", "language": "en"}},
            "delivery": {"requirement": "AtLeastOne"},
        }
    )
    run = run_spec(
        retry={"backoffLimit": 1},
        config={"configurable": {"tone": "warm"}},
        delivery={"artifacts": ["*.md"]},
    )
    _, settings = prepared(run, agent)
    assert (settings.retry.backoff_limit, settings.retry.backoff_seconds) == (1, 2)
    assert settings.retry.max_disruptions == ResolvedRun().retry.max_disruptions
    assert settings.timeouts.start_seconds == 30
    assert settings.recursion_limit == 50
    assert settings.configurable == {"tone": "warm", "language": "en"}
    assert (settings.delivery.requirement, settings.delivery.artifacts) == ("AtLeastOne", ("*.md",))


def test_an_unset_renewal_is_a_quarter_of_the_duration() -> None:
    _, settings = prepared(run_spec(), agent_spec(lease={"durationSeconds": 20}))
    assert (settings.lease.duration_seconds, settings.lease.renew_seconds) == (20, 5)


@pytest.mark.parametrize(
    ("run", "agent", "field"),
    [
        ({"retry": {"backoffSeconds": 400}}, {}, "retry.backoffSeconds"),
        ({"delivery": {"artifacts": []}}, ALL, "delivery.requirement All"),
    ],
)  # fmt: skip
def test_settings_that_fit_alone_but_not_together_are_refused(
    run: dict[str, Any], agent: dict[str, Any], field: str
) -> None:
    found = problem(run_spec(**run), agent_spec(**agent))
    assert (found.reason, found.final) == (Reason.CONFIGURATION_INVALID, True)
    assert field in found.message


def test_an_unset_limit_of_a_file_is_at_most_that_of_all_files() -> None:
    _, settings = prepared(run_spec(), agent_spec(workspace={"maxBytes": 1024}))
    assert (settings.workspace.max_bytes, settings.workspace.max_file_bytes) == (1024, 1024)


def test_model_parameters_are_json() -> None:
    _, settings = prepared(run_spec(), openai(parameters={"temperature": "0.2", "stop": '["END"]'}), {})
    assert settings.model.parameters == {"temperature": 0.2, "stop": ["END"]}


def test_a_parameter_that_is_not_json_says_which_and_how_to_write_it() -> None:
    found = problem(run_spec(), openai(parameters={"effort": "high"}), {})
    assert (found.reason, found.final) == (Reason.AGENT_PENDING, False)
    assert "model.parameters.effort" in found.message
    assert '"text"' in found.message
    judged = check_agent(openai(parameters={"effort": "high"}), {})
    assert judged is not None
    assert judged.reason == Reason.CONFIGURATION_INVALID


def test_words_become_messages() -> None:
    assert prepared(run_spec(), agent_spec())[0].input == {"messages": [{"role": "user", "content": "Hello"}]}
    several = run_spec(input={"messages": [{"role": "system", "content": "Be brief"}]})
    assert prepared(several, agent_spec())[0].input == {
        "messages": [{"role": "system", "content": "Be brief"}]
    }


def test_json_is_handed_on_as_it_is() -> None:
    assert prepared(run_spec(input={"json": '{"topic": "sales"}'}), agent_spec())[0].input == {
        "topic": "sales"
    }


@pytest.mark.parametrize("text", ["{]", "[1]"])
def test_json_that_is_no_object_is_refused_for_good(text: str) -> None:
    found = problem(run_spec(input={"json": text}), agent_spec())
    assert (found.reason, found.final) == (Reason.INPUT_UNAVAILABLE, True)
    assert "input.json" in found.message


@pytest.mark.parametrize(
    ("key", "expected"),
    [("q.md", {"messages": [{"role": "user", "content": '{"topic": 1}'}]}), ("q.json", {"topic": 1})],
)
def test_a_config_map_holds_words_or_by_its_name_json(key: str, expected: dict[str, Any]) -> None:
    run = run_spec(input={"configMapKeyRef": {"name": "question", "key": key}})
    contents = {**SCRIPT, ("question", key): '{"topic": 1}'}
    assert prepared(run, agent_spec(), contents)[0].input == expected


def test_a_missing_config_map_is_waited_for_and_named() -> None:
    run = run_spec(files=[{"path": "notes/a.md", "configMapKeyRef": {"name": "notes", "key": "a.md"}}])
    found = problem(run, agent_spec())
    assert (found.reason, found.final) == (Reason.INPUT_PENDING, False)
    assert "ConfigMap notes with key a.md" in found.message
    assert [(r.name, r.key) for r in references(run, agent_spec())] == [
        ("notes", "a.md"),
        ("script", "a.yaml"),
    ]


def test_files_are_taken_as_bytes() -> None:
    run = run_spec(
        files=[
            {"path": "a.md", "configMapKeyRef": {"name": "notes", "key": "a.md"}},
            {"path": "b.bin", "configMapKeyRef": {"name": "notes", "key": "b.bin"}},
        ]
    )
    contents = {**SCRIPT, ("notes", "a.md"): "Grüße", ("notes", "b.bin"): b"\xff\x00"}
    files = prepared(run, agent_spec(), contents)[0].files
    assert [(f.path, f.data) for f in files] == [("a.md", "Grüße".encode()), ("b.bin", b"\xff\x00")]


def test_input_that_is_no_text_is_refused() -> None:
    run = run_spec(input={"configMapKeyRef": {"name": "question", "key": "q"}})
    found = problem(run, agent_spec(), {**SCRIPT, ("question", "q"): b"\xff\xfe"})
    assert (found.reason, found.final) == (Reason.INPUT_UNAVAILABLE, True)


def test_files_over_the_workspaces_limits_are_refused_before_anything_runs() -> None:
    run = run_spec(files=[{"path": "a.md", "configMapKeyRef": {"name": "notes", "key": "a.md"}}])
    contents = {**SCRIPT, ("notes", "a.md"): "x" * 5000}
    one = problem(run, agent_spec(workspace={"maxFileBytes": 4096}), contents)
    assert (one.reason, one.final) == (Reason.WORKSPACE_LIMIT_EXCEEDED, True)
    assert "files a.md: 5000 bytes" in one.message
    all_ = problem(run, agent_spec(workspace={"maxBytes": 4096, "maxFileBytes": 4096}), contents)
    assert all_.reason == Reason.WORKSPACE_LIMIT_EXCEEDED


def test_input_that_the_store_does_not_take_is_refused() -> None:
    run = run_spec(input={"configMapKeyRef": {"name": "question", "key": "q"}})
    found = problem(run, agent_spec(), {**SCRIPT, ("question", "q"): "x" * INPUT_BYTES_LIMIT})
    assert (found.reason, found.final) == (Reason.INPUT_TOO_LARGE, True)


def test_the_agents_own_config_maps_make_it_wait() -> None:
    found = problem(run_spec(), agent_spec(), {})
    assert (found.reason, found.final) == (Reason.AGENT_PENDING, False)
    judged = check_agent(agent_spec(), {})
    assert judged is not None
    assert judged.reason == Reason.CONFIG_MAP_NOT_FOUND
    assert check_agent(agent_spec(), SCRIPT) is None


def test_instructions_come_from_the_spec_or_a_config_map() -> None:
    assert prepared(run_spec(), agent_spec(instructions={"inline": "Be kind"}))[1].instructions == "Be kind"
    by_ref = agent_spec(instructions={"configMapKeyRef": {"name": "prompt", "key": "p"}})
    contents = {**SCRIPT, ("prompt", "p"): "Be exact"}
    assert prepared(run_spec(), by_ref, contents)[1].instructions == "Be exact"


def test_a_spec_hash_leaves_out_what_equals_the_built_in_values() -> None:
    written_out = run_spec(
        retry={"backoffLimit": 3, "maxDisruptions": 10},
        timeouts={"activeSeconds": 86_400},
        config={"recursionLimit": 100},
        delivery={"requirement": "None"},
        files=[],
    )
    assert spec_hash(written_out) == spec_hash(run_spec())
    assert spec_hash(run_spec(retry={"backoffLimit": 4})) != spec_hash(run_spec())
    assert spec_hash(run_spec(input={"text": "Hi"})) != spec_hash(run_spec())
