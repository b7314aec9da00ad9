"""A message that is read back the short way is the message that LangGraph's own serializer makes."""

from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from treadle_runtime.serde import StrictSerializer, UnreadableValue
from treadle_runtime.stored_messages import SHAPES, revive_message

PYDANTIC_CODE = 5

texts = st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
calls = st.fixed_dictionaries(
    {"name": texts, "args": objects, "id": st.none() | texts},
    optional={"type": st.just("tool_call"), "extras": objects, "index": st.integers(0, 3)},
)
broken_calls = st.fixed_dictionaries(
    {"name": texts, "args": texts, "id": st.none() | texts, "error": st.none() | texts}
)
provider_calls = st.lists(
    st.fixed_dictionaries(
        {
            "id": texts,
            "type": st.just("function"),
            "function": st.fixed_dictionaries(
                {"name": texts, "arguments": st.sampled_from(['{"a": 1}', "{", "[]", '"x"'])}
            ),
        }
    ),
    max_size=2,
)
counts = st.integers(0, 10**6) | st.booleans() | st.just(2.0)
usages = st.fixed_dictionaries(
    {"input_tokens": counts, "output_tokens": counts, "total_tokens": counts},
    optional={
        "output_token_details": st.dictionaries(st.sampled_from(["reasoning", "audio", "flex"]), counts),
        "input_token_details": st.dictionaries(st.sampled_from(["cache_read", "audio", "flex"]), counts),
        "more": values,
    },
)
contents = texts | st.lists(
    texts | st.fixed_dictionaries({"type": st.just("text"), "text": texts}), max_size=3
)
fields_of_any = {
    "content": contents,
    "additional_kwargs": objects | st.fixed_dictionaries({"tool_calls": provider_calls | st.none() | values}),
    "response_metadata": objects,
    "name": st.none() | texts,
    "id": st.none() | texts,
}
fields_of_ai = {
    **fields_of_any,
    "tool_calls": st.lists(calls, max_size=2),
    "invalid_tool_calls": st.just([]) | st.lists(broken_calls, max_size=2),
    "usage_metadata": st.none() | usages,
}
fields_of_tool = {
    **fields_of_any,
    "tool_call_id": texts | st.integers(),
    "artifact": values,
    "status": st.sampled_from(["success", "error"]),
}


def made_of(
    cls: type[BaseMessage], fields: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[BaseMessage]:
    """Messages as a constructor makes them, and as somebody may have changed them without validation."""

    @st.composite
    def message(draw: st.DrawFn) -> BaseMessage:
        given_fields = draw(st.fixed_dictionaries(fields, optional={"extra": values}))
        try:
            made = cls(**given_fields)
        except (ValueError, TypeError, KeyError, AttributeError):
            made = cls.model_construct(**given_fields)
        if draw(st.integers(0, 3)) == 0:
            made.__dict__[draw(st.sampled_from(sorted(fields)))] = draw(values)
        return made

    return message()


messages = st.one_of(
    made_of(HumanMessage, fields_of_any),
    made_of(SystemMessage, fields_of_any),
    made_of(AIMessage, fields_of_ai),
    made_of(ToolMessage, fields_of_tool),
    made_of(ChatMessage, {**fields_of_any, "role": texts}),
    made_of(AIMessageChunk, fields_of_ai),
    texts.map(lambda message_id: RemoveMessage(id=message_id)),
)


def anatomy(value: Any) -> Any:
    """All that makes up a value, types and the order of keys included: two equal ones are interchangeable."""
    if isinstance(value, BaseMessage):
        state = value.__getstate__()
        sets = {key: sorted(content) for key, content in state.items() if isinstance(content, set)}
        return type(value), anatomy({**state, **sets})
    if isinstance(value, dict):
        return dict, [(anatomy(key), anatomy(content)) for key, content in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [anatomy(content) for content in value]
    return type(value), repr(value)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of fields that were changed unchecked
@given(messages)
def test_messages_come_back_as_by_the_librarys_own_serializer(message: BaseMessage) -> None:
    tag, data = StrictSerializer().dumps_typed([message])
    assert anatomy(StrictSerializer().loads_typed((tag, data))) == anatomy(
        JsonPlusSerializer().loads_typed((tag, data))
    )


@given(
    st.sampled_from([HumanMessage, SystemMessage, AIMessage, ToolMessage]),
    st.dictionaries(
        st.sampled_from(sorted({"content_blocks", "type", "more", *fields_of_ai, *fields_of_tool})), values
    ),
    st.booleans(),
)
def test_whatever_stands_for_a_message_is_read_as_by_the_library_or_refused(
    cls: type[BaseMessage], fields: dict[str, Any], complete: bool
) -> None:
    usual: dict[str, Any] = {}
    if complete:
        extra = {"tool_call_id": "1"} if cls is ToolMessage else {}
        usual = cls(content="hi", **extra).model_dump()
    packed = ormsgpack.packb([cls.__module__, cls.__name__, {**usual, **fields}, "model_validate_json"])
    data = ormsgpack.packb(ormsgpack.Ext(PYDANTIC_CODE, packed))
    expected = JsonPlusSerializer().loads_typed(("msgpack", data))
    if isinstance(expected, BaseMessage):
        assert anatomy(StrictSerializer().loads_typed(("msgpack", data))) == anatomy(expected)
    else:
        with pytest.raises(UnreadableValue):
            StrictSerializer().loads_typed(("msgpack", data))


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("hi", id="1"),
        SystemMessage("be kind", name="policy"),
        AIMessage(
            "",
            tool_calls=[{"name": "ls", "args": {"path": "."}, "id": "c1"}],
            usage_metadata={
                "input_tokens": 1,
                "output_tokens": 2,
                "total_tokens": 3,
                "input_token_details": {"cache_read": 1},
            },
            response_metadata={"model_name": "m", "finish_reason": "tool_calls"},
        ),
        ToolMessage("file", tool_call_id="c1", name="ls", artifact={"n": 1}),
    ],
    ids=lambda message: type(message).__name__,
)
def test_the_usual_messages_take_the_short_way(message: BaseMessage) -> None:
    # A library whose classes validate otherwise closes the short way, to be slow rather than wrong.
    packed = ormsgpack.packb([type(message).__module__, type(message).__name__, message.model_dump(), "x"])
    assert revive_message(packed, lambda _code, data: data) == message


def test_only_types_that_are_always_allowed_take_the_short_way() -> None:
    assert {cls for cls, *_ in SHAPES.values()} == {HumanMessage, SystemMessage, AIMessage, ToolMessage}


@pytest.mark.parametrize(
    "packed",
    [b"", b"\xc1", ormsgpack.packb(None), ormsgpack.packb([1, 2]), ormsgpack.packb([[], {}, {}, ""])],
    ids=["nothing", "no msgpack", "no list", "too short", "no names"],
)
def test_what_is_no_message_at_all_is_left_to_the_library(packed: bytes) -> None:
    assert revive_message(packed, lambda _code, data: data) is None


def test_a_message_of_its_own_is_made_each_time() -> None:
    serde = StrictSerializer()
    stored = serde.dumps_typed([AIMessage("hi", id="1")])
    first, second = (serde.loads_typed(stored)[0] for _ in range(2))
    first.name = "changed"
    first.additional_kwargs["changed"] = True
    assert (second.name, second.additional_kwargs, second.model_fields_set) == (
        None,
        {},
        set(AIMessage.model_fields),
    )


def test_the_messages_of_a_delta_snapshot_come_back_too() -> None:
    serde = StrictSerializer()
    snapshot = _DeltaSnapshot([HumanMessage("hi", id="1")])
    loaded = serde.loads_typed(serde.dumps_typed(snapshot))
    assert type(loaded) is _DeltaSnapshot
    assert loaded == snapshot


def test_what_is_not_allowed_inside_of_a_message_is_an_error() -> None:
    serde = StrictSerializer()
    inside = ormsgpack.Ext(0, ormsgpack.packb(["os", "system", "true"]))
    fields = HumanMessage("hi").model_dump() | {"additional_kwargs": {"x": inside}}
    packed = ormsgpack.packb(["langchain_core.messages.human", "HumanMessage", fields, "model_validate_json"])
    with pytest.raises(UnreadableValue, match=r"os\.system"):
        serde.loads_typed(("msgpack", ormsgpack.packb(ormsgpack.Ext(PYDANTIC_CODE, packed))))
