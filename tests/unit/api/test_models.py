"""The models give the answers that the API server gives (tests/cluster/api asks it the same table)."""

import pytest
from pydantic import ValidationError

from support.api_cases import CREATE
from support.api_objects import Case, agent, merged, run, thread
from support.api_statuses import STATUS, SUCCESS, StatusCase
from treadle_api.agent import Agent
from treadle_api.run import Run
from treadle_api.thread import Thread

MODELS: dict[str, type[Agent] | type[Thread] | type[Run]] = {"Agent": Agent, "Thread": Thread, "Run": Run}
BASES = {"Agent": agent(), "Thread": thread(), "Run": run()}


def _accepts(raw: dict[str, object], kind: str) -> bool:
    try:
        MODELS[kind].model_validate(raw)
    except ValidationError:
        return False
    return True


@pytest.mark.req("R91")
@pytest.mark.parametrize("case", CREATE, ids=str)
def test_a_model_accepts_what_the_table_allows_and_nothing_else(case: Case) -> None:
    raw = case.object
    assert _accepts(raw, raw["kind"]) == (case.deny is None or not case.model_sees)


@pytest.mark.parametrize("case", STATUS, ids=str)
def test_a_model_judges_a_status_that_stands_alone(case: StatusCase) -> None:
    raw = {**BASES[case.kind], "status": case.after}
    assert _accepts(raw, case.kind) == (case.deny is None or not case.alone)


def test_an_object_that_nobody_has_seen_says_so() -> None:
    assert all(
        MODELS[kind].model_validate(raw).status.observed_generation == -1 for kind, raw in BASES.items()
    )


def test_an_older_program_reads_a_newer_object() -> None:
    newer = merged(run(), {"spec": {"operation": "Turn"}, "status": {"newField": {"a": 1}}})
    assert Run.model_validate(newer).spec.thread_ref.name == "sales"


def test_fields_are_spelt_as_in_the_api() -> None:
    status = Run.model_validate({**run(), "status": SUCCESS}).status
    dumped = status.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert dumped["delivery"]["receiptID"] == "sha256:0a"
    assert dumped["completionTime"] == SUCCESS["completionTime"]
    assert dumped["ownership"] == {"fencingToken": 3}


def test_models_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Run.model_validate(run()).spec.input = None  # type: ignore[assignment, misc]
