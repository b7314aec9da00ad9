"""What is generated is fresh, small enough, and complete."""

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from treadle_api.crdgen import KINDS, definition, generated, render
from treadle_api.reasons import ConditionType, Reason
from treadle_api.resolved import ResolvedRetry, ResolvedRun, ResolvedTimeouts
from treadle_api.schema import Schema, UnsupportedSchema, structural
from treadle_api.settings import Retry, RunConfig, Timeouts

CRD_BYTES_LIMIT = 100_000


def test_no_generated_file_is_stale() -> None:
    stale = [path.name for path, text in generated() if not path.exists() or path.read_text() != text]
    assert stale == [], "run `make generate`"


@pytest.mark.parametrize("model", KINDS, ids=lambda model: model.__name__)
def test_a_crd_stays_small(model: type[BaseModel]) -> None:
    text = next(render(kind) for kind in KINDS if kind is model)
    assert len(text.encode()) < CRD_BYTES_LIMIT
    assert yaml.safe_load(text) == next(definition(kind) for kind in KINDS if kind is model)


@pytest.mark.parametrize("model", KINDS, ids=lambda model: model.__name__)
def test_kubectl_explain_has_a_sentence_for_every_field(model: type[BaseModel]) -> None:
    kind = next(kind for kind in KINDS if kind is model)
    root: Schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert root["description"]
    silent = [
        path
        for part in ("spec", "status")
        for path, node in _fields(root["properties"][part], part)
        if not node.get("description", "").endswith((".", ")", "`"))
    ]
    assert silent == []


def _fields(node: Schema, path: str) -> list[tuple[str, Schema]]:
    found = [(path, node)]
    for name, child in node.get("properties", {}).items():
        found += _fields(child, f"{path}.{name}")
    if "items" in node and "properties" in node["items"]:
        found += _fields(node["items"], f"{path}[]")
    return found


def test_every_reason_is_explained_in_the_readme() -> None:
    readme = next(text for path, text in generated() if path.name == "README.md")
    for reason in Reason:
        assert f"| {reason.value} | {reason.meaning} | {reason.next_action} |" in readme
    for condition in ConditionType:
        assert f"| {condition.value} | {condition.meaning} |" in readme


@pytest.mark.parametrize("reason", Reason, ids=str)
def test_a_reason_is_one_word_with_one_sentence_of_advice(reason: Reason) -> None:
    assert reason.value.isalnum()
    assert reason.value[0].isupper()
    assert reason.next_action.endswith(".")
    assert ". " not in reason.next_action


def _source(*folders: str) -> str:
    root = Path(__file__).parents[3]
    return "\n".join(path.read_text() for folder in folders for path in sorted((root / folder).rglob("*.py")))


def test_every_reason_can_occur() -> None:
    given = set(re.findall(r"\bReason\.([A-Z_]+)\b", _source("operator", "runtime")))
    assert given == {reason.name for reason in Reason}


def test_every_condition_can_occur() -> None:
    written = _source("operator")
    assert [c.value for c in ConditionType if f'"{c.value}"' not in written] == []


class _Open(BaseModel):
    anything: dict[str, object]


class _Endless(BaseModel):
    text: str


class _Either(BaseModel):
    value: int | str


@pytest.mark.parametrize(
    ("model", "complaint"),
    [(_Open, "open object"), (_Endless, "needs max_length"), (_Either, "union of 2 types")],
    ids=["open object", "unbounded string", "union"],
)
def test_the_generator_refuses_what_it_does_not_know(model: type[BaseModel], complaint: str) -> None:
    with pytest.raises(UnsupportedSchema, match=complaint):
        structural(model)


@pytest.mark.parametrize(
    ("model", "resolved"),
    [(Retry, ResolvedRetry), (Timeouts, ResolvedTimeouts), (RunConfig, ResolvedRun)],
    ids=["retry", "timeouts", "config"],
)
def test_the_documented_built_in_values_are_the_real_ones(
    model: type[BaseModel], resolved: type[BaseModel]
) -> None:
    for name, field in model.model_fields.items():
        default = resolved.model_fields[name].default
        if isinstance(default, int):
            assert f"({default})" in (field.description or "")
