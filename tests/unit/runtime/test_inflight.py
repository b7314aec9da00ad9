"""A file in flight stays out of a sibling's commit, and is changed by one task at a time."""

import asyncio
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from treadle_runtime.workspace import inflight
from treadle_runtime.workspace.inflight import InFlight, InFlightTimeout, current_chain


class State(TypedDict):
    x: int


async def test_outside_of_a_graph_nothing_is_in_flight() -> None:
    flight = InFlight()
    await flight.begin("a")
    assert current_chain() == ()
    assert flight.paths == frozenset()


async def test_a_second_task_waits_until_the_first_ones_change_was_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flight = InFlight()
    task: tuple[str, ...] = ("one",)
    monkeypatch.setattr(inflight, "current_chain", lambda: task)
    await flight.begin("a")
    await flight.begin("a")
    task = ("outer", "two")
    await flight.begin("b")
    waiting = asyncio.ensure_future(flight.begin("a"))
    await asyncio.sleep(0)
    flight.land("one")
    assert flight.paths == {"b"}
    assert not waiting.done(), "landed, not yet captured"
    await flight.captured()
    await waiting
    assert flight.paths == {"a", "b"}
    flight.land(None)
    assert flight.paths == frozenset()


async def test_who_waits_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    flight = InFlight()
    task: tuple[str, ...] = ("one",)
    monkeypatch.setattr(inflight, "current_chain", lambda: task)
    monkeypatch.setattr(inflight, "_WAIT_SECONDS", 0.01)
    await flight.begin("a")
    task = ("outer", "two")
    with pytest.raises(InFlightTimeout, match="another tool call"):
        await flight.begin("a")


async def test_the_task_is_the_one_that_langgraph_names_with_those_around_it() -> None:
    seen: list[tuple[str, ...]] = []

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        seen.append(current_chain())
        return {}

    inner = graph_of(node).compile(checkpointer=False)

    async def nested(state: dict[str, Any]) -> dict[str, Any]:
        seen.append(current_chain())
        await inner.ainvoke({"x": 1})
        return {}

    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    await graph_of(nested).compile(checkpointer=InMemorySaver()).ainvoke({"x": 1}, config)
    (outer,), (around, task) = seen
    assert around == outer
    assert task != outer
    seen.clear()
    await graph_of(node).compile().ainvoke({"x": 1})
    assert seen == [()], "without a saver nothing would ever land"


def graph_of(node: Any) -> StateGraph[Any, Any, Any, Any]:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("n", node)
    graph.add_edge(START, "n")
    return graph
