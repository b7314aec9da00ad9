"""The verdict on a run: a table."""

import pytest

from treadle_api.reasons import Reason
from treadle_api.records import RunStatus
from treadle_runtime import outcome
from treadle_runtime.models.scripted import ScriptedModelError


class GraphRecursionError(RecursionError):
    """By name the error that LangGraph raises."""


class APITimeoutError(Exception):
    """By name the error of a provider's client."""


class APIConnectionError(Exception):
    """By name the error of a provider's client."""


class WorkspaceError(Exception):
    """By name the workspace's refusal."""


@pytest.mark.parametrize(
    ("error", "from_model", "reason", "says"),
    [
        (GraphRecursionError("limit of 25"), False, Reason.RECURSION_LIMIT, "recursionLimit"),
        (ScriptedModelError(401, "bad key"), True, Reason.MODEL_REJECTED, "credentials"),
        (ScriptedModelError(403, "no"), True, Reason.MODEL_REJECTED, "HTTP 403"),
        (ScriptedModelError(404, "no model"), True, Reason.MODEL_REJECTED, "model.name"),
        (ScriptedModelError(400, "bad"), True, Reason.MODEL_REJECTED, "model.parameters"),
        (ScriptedModelError(429, "slow down"), True, Reason.MODEL_UNAVAILABLE, "quota"),
        (ScriptedModelError(500, "boom"), True, Reason.MODEL_UNAVAILABLE, "HTTP 500"),
        (ScriptedModelError(408, "late"), True, Reason.MODEL_UNAVAILABLE, "in time"),
        (TimeoutError(), True, Reason.MODEL_UNAVAILABLE, "in time"),
        (APITimeoutError("late"), True, Reason.MODEL_UNAVAILABLE, "in time"),
        (APIConnectionError("refused"), True, Reason.MODEL_UNAVAILABLE, "baseURL"),
        (ScriptedModelError(500, "a tool's own"), False, Reason.AGENT_ERROR, "a tool's own"),
        (WorkspaceError("holds 9 files"), False, Reason.WORKSPACE_LIMIT_EXCEEDED, "9 files"),
        (KeyError("amount"), False, Reason.AGENT_ERROR, "KeyError: 'amount'"),
    ],
)
def test_an_error_gets_its_reason_and_a_readable_sentence(
    error: Exception, from_model: bool, reason: Reason, says: str
) -> None:
    verdict = outcome.of_failure(outcome.describe(error, from_model=from_model))
    assert (verdict.outcome, verdict.reason) == (RunStatus.ERROR, reason)
    assert says in verdict.message


def test_a_status_is_found_behind_a_wrapping_error() -> None:
    error = RuntimeError("the node failed")
    error.__cause__ = ScriptedModelError(429, "slow down")
    assert outcome.describe(error).http_status == 429


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-abc123def",
        "Authorization: Bearer abc.def.ghi",
        "connect to postgresql://agent:hunter2@db:5432/x failed",
        '{"api_key": "hunter2"}',
        "password=hunter2",
    ],
)
def test_no_credential_gets_into_a_message(text: str) -> None:
    said = outcome.readable(text)
    assert "[removed]" in said
    assert not any(secret in said for secret in ("hunter2", "sk-abc123def", "abc.def.ghi"))


def test_a_message_is_one_line_of_at_most_512_characters() -> None:
    said = outcome.readable("a\n\nb" + "x" * 1000)
    assert len(said) == 512
    assert said.startswith("a b")


@pytest.mark.parametrize(
    ("coverage", "presented", "status", "reason"),
    [
        ("True", 0, RunStatus.SUCCESS, Reason.NOTHING_TO_DELIVER),
        ("True", 2, RunStatus.SUCCESS, Reason.DELIVERED),
        ("False", 1, RunStatus.ERROR, Reason.COVERAGE_FAILED),
    ],
)
def test_a_finished_graph_succeeds_only_if_its_delivery_is_covered(
    coverage: str, presented: int, status: RunStatus, reason: Reason
) -> None:
    verdict = outcome.of_success(
        requirement="All", coverage=coverage, presented=presented, missing=("report.md",)
    )
    assert (verdict.outcome, verdict.reason) == (status, reason)
    assert ("report.md" in verdict.message) is (coverage == "False")


def test_a_cancel_names_what_asked_for_it() -> None:
    verdict = outcome.of_cancel("Graceful")
    assert (verdict.outcome, verdict.reason) == (RunStatus.CANCELLED, Reason.CANCELLED)
    assert "Graceful" in verdict.message
