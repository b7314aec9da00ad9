"""Values that would come back as something else are errors."""

import copy
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde import _msgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send

from treadle_runtime.serde import NotStrict, StrictSerializer, UnreadableValue


@dataclass
class Undeclared:
    x: int = 1


@dataclass
class Fragile:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("cannot be rebuilt")


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"bytes",
        {"a": [1, 2.5, "x", None, True], "b": {1: "int key"}},
        [HumanMessage("hi", id="1"), AIMessage("yo", id="2", tool_calls=[])],
        datetime(2026, 1, 1, tzinfo=UTC),
        Send("node", {"a": 1}),
        (Interrupt(value={"q": "?"}, id="i"),),
        {1, 2, 3},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_state_is_made_of_comes_back_equal(value: Any) -> None:
    serde = StrictSerializer()
    loaded = serde.loads_typed(serde.dumps_typed(value))
    assert loaded == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize(
    "value",
    [
        Undeclared(),
        [Undeclared()],
        {"deep": {"down": (Undeclared(),)}},
        Send("node", Undeclared()),
    ],
    ids=["bare", "in a list", "deep down", "inside a Send"],
)
def test_a_type_that_is_not_allowed_is_an_error_and_not_a_dict(value: Any) -> None:
    serde = StrictSerializer()
    with pytest.raises(UnreadableValue, match="Undeclared"):
        serde.loads_typed(serde.dumps_typed(value))


def test_a_refusal_leaves_no_trace_on_the_next_value() -> None:
    serde = StrictSerializer()
    with pytest.raises(UnreadableValue):
        serde.loads_typed(serde.dumps_typed(Undeclared()))
    assert serde.loads_typed(serde.dumps_typed([1])) == [1]


def test_an_allowed_type_is_rebuilt_by_the_clone_alone() -> None:
    serde = StrictSerializer()
    clone = serde.with_msgpack_allowlist([(Undeclared.__module__, "Undeclared")])
    stored = serde.dumps_typed([Undeclared(7)])
    assert clone.loads_typed(stored) == [Undeclared(7)]
    with pytest.raises(UnreadableValue):
        serde.loads_typed(stored)


def test_the_extra_list_is_merged_with_what_the_schema_declares() -> None:
    serde = StrictSerializer(extra=[(Undeclared.__module__, "Undeclared")])
    clone = serde.with_msgpack_allowlist([(Fragile.__module__, "Fragile")])
    assert clone.loads_typed(clone.dumps_typed([Undeclared(1), Fragile(2)])) == [Undeclared(1), Fragile(2)]
    with pytest.raises(UnreadableValue, match="Fragile"):
        serde.loads_typed(serde.dumps_typed(Fragile(1)))


def test_an_allowed_type_that_cannot_be_rebuilt_is_an_error_too() -> None:
    serde = StrictSerializer(extra=[(Fragile.__module__, "Fragile")])
    fragile = Fragile(1)
    fragile.x = -1
    with pytest.raises(UnreadableValue):
        serde.loads_typed(serde.dumps_typed(fragile))


@pytest.mark.parametrize("tag", ["json", "pickle", "bytearray", "empty", ""])
def test_a_foreign_type_tag_is_refused(tag: str) -> None:
    with pytest.raises(UnreadableValue, match="type tag"):
        StrictSerializer().loads_typed((tag, b"{}"))


def test_a_bytearray_is_written_under_a_tag_that_can_be_read() -> None:
    serde = StrictSerializer()
    assert serde.loads_typed(serde.dumps_typed(bytearray(b"abc"))) == b"abc"


def test_without_strict_mode_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_msgpack, "STRICT_MSGPACK_ENABLED", False)
    with pytest.raises(NotStrict, match="LANGGRAPH_STRICT_MSGPACK=true"):
        StrictSerializer()


def test_the_librarys_own_serializer_would_have_let_it_through() -> None:
    # The reason for the class: should the library begin to raise by itself, it can go.
    plain = JsonPlusSerializer()
    assert plain.loads_typed(plain.dumps_typed(Undeclared(5))) == {"x": 5}


def test_a_shallow_copy_keeps_refusing() -> None:
    clone = copy.copy(StrictSerializer())
    with pytest.raises(UnreadableValue):
        clone.loads_typed(clone.dumps_typed(Undeclared()))


@pytest.fixture(params=[True, False], ids=["collecting", "not collecting"])
def collects(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the garbage collector is on before a value is decoded."""
    if not request.param:
        gc.disable()
    yield request.param
    gc.enable()


def test_the_garbage_collector_is_left_as_it_was(collects: bool) -> None:
    serde = StrictSerializer()
    assert serde.loads_typed(serde.dumps_typed([HumanMessage("hi", id="1")])) == [HumanMessage("hi", id="1")]
    assert gc.isenabled() is collects
    with pytest.raises(UnreadableValue):
        serde.loads_typed(serde.dumps_typed(Undeclared()))
    assert gc.isenabled() is collects
    with pytest.raises(ValueError, match="invalid type"):
        serde.loads_typed(("msgpack", b"\xc1"))
    assert gc.isenabled() is collects
