"""The reducers of the thread's state: documented rules and the law that batching changes nothing."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage

from treadle_runtime.state.reducers import (
    REMOVE_ALL,
    merge_messages,
    merge_presented,
    replace_unless_none,
    union,
)

_IDS = st.sampled_from(["a", "b", "c"])
_MESSAGES = st.builds(lambda i, t: HumanMessage(t, id=i), _IDS, st.text(max_size=3))
_EMPTY_ALL = st.just(RemoveMessage(id=REMOVE_ALL))
_WRITES = st.lists(st.one_of(_MESSAGES, _EMPTY_ALL), max_size=4)


def shown(messages: list[Any]) -> list[tuple[str, str]]:
    return [(message.id, message.content) for message in messages]


@pytest.mark.req("R2")
def test_messages_are_appended_in_order_and_replaced_in_place() -> None:
    state = merge_messages([], [HumanMessage("1", id="a"), AIMessage("2", id="b")])
    state = merge_messages(state, [HumanMessage("one", id="a"), AIMessage("3", id="c")])
    assert shown(state) == [("a", "one"), ("b", "2"), ("c", "3")]


@pytest.mark.req("R2")
def test_messages_are_removed_by_id_and_all_at_once() -> None:
    state = merge_messages([], [HumanMessage(str(n), id=str(n)) for n in range(4)])
    state = merge_messages(state, [RemoveMessage(id="1"), RemoveMessage(id="3")])
    assert shown(state) == [("0", "0"), ("2", "2")]
    state = merge_messages(state, [RemoveMessage(id=REMOVE_ALL), HumanMessage("new", id="n")])
    assert shown(state) == [("n", "new")]


@pytest.mark.req("R2")
def test_a_null_history_and_an_unknown_removal_are_errors() -> None:
    with pytest.raises(ValueError, match="state is null"):
        merge_messages(None, [])
    with pytest.raises(ValueError, match="update is null"):
        merge_messages([], None)
    with pytest.raises(ValueError, match="no message 'x'"):
        merge_messages([], [RemoveMessage(id="x")])


def test_a_message_without_an_id_gets_one_and_a_chunk_becomes_a_message() -> None:
    state = merge_messages(
        [], [HumanMessage("hi"), AIMessageChunk(content="there", id="c"), {"role": "user", "content": "x"}]
    )
    assert all(message.id for message in state)
    assert type(state[1]) is AIMessage


@pytest.mark.req("R2")
@given(st.lists(_MESSAGES, max_size=4), _WRITES, _WRITES)
def test_batching_changes_no_messages(state: list[Any], first: list[Any], second: list[Any]) -> None:
    start = merge_messages([], state)
    apart = merge_messages(merge_messages(start, first), second)
    together = merge_messages(start, [*first, *second])
    assert shown(apart) == shown(together)


@pytest.mark.req("R3")
@given(st.lists(st.text(max_size=2)), st.lists(st.text(max_size=2)), st.lists(st.text(max_size=2)))
def test_artifacts_are_an_ordered_union(state: list[str], first: list[str], second: list[str]) -> None:
    merged = union(union(state, first), second)
    assert merged == union(state, [*first, *second])
    assert len(set(merged)) == len(merged)
    assert set(merged) == {*state, *first, *second}
    assert union(merged, None) == union(None, merged) == merged


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    ("update", "expected"),
    [(None, ["old"]), ([], []), (["new"], ["new"])],
    ids=["keeps", "clears", "replaces"],
)
def test_todos_keep_clear_or_are_replaced(update: list[str] | None, expected: list[str]) -> None:
    assert replace_unless_none(["old"], update) == expected


_TODOS = st.lists(st.none() | st.lists(st.text(max_size=1), max_size=2), max_size=4)
_PRESENTED = st.lists(
    st.fixed_dictionaries(
        {"run": st.sampled_from(["r", "s"]), "paths": st.lists(st.text(max_size=1), max_size=3)}
    ),
    max_size=4,
)


@pytest.mark.req("R4")
@given(_TODOS, _TODOS)
def test_batching_changes_no_todos(first: list[Any], second: list[Any]) -> None:
    assert fold(replace_unless_none, fold(replace_unless_none, None, first), second) == fold(
        replace_unless_none, None, [*first, *second]
    )


@given(_PRESENTED)
def test_presented_files_are_those_of_the_newest_run(writes: list[dict[str, Any]]) -> None:
    merged: dict[str, Any] = fold(merge_presented, {}, writes)
    if writes:
        newest = writes[-1]["run"]
        assert merged["run"] == newest
        tail: list[str] = []
        for write in reversed(writes):
            if write["run"] != newest:
                break
            tail = [*write["paths"], *tail]
        assert merged["paths"] == list(dict.fromkeys(tail))


def fold(reducer: Callable[[Any, Any], Any], start: Any, writes: list[Any]) -> Any:
    return reduce(reducer, writes, start)
