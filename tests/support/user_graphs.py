"""Graphs as users bring them: found by `module:attribute`, without our middlewares or state."""

import asyncio
import contextlib
import logging
import operator
import threading
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from treadle_runtime.graphs.context import BuildContext

log = logging.getLogger(__name__)
STUCK = "the node is where it will not come back from"


class Parallel(TypedDict, total=False):
    messages: list[AnyMessage]
    seen: Annotated[list[str], operator.add]


def parallel(context: BuildContext) -> StateGraph[Any, Any, Any, Any]:
    """Three nodes side by side; each asks the model, one of them synchronously from a thread."""

    def ask_in_thread(state: Parallel) -> Parallel:
        return {"seen": [f"sync {context.model.invoke([HumanMessage('x')]).text}"]}

    async def ask(state: Parallel) -> Parallel:
        answer = await context.model.ainvoke([HumanMessage("x")])
        return {"seen": [f"async {answer.text}"]}

    async def use_tool(state: Parallel, config: RunnableConfig) -> Parallel:
        return {"seen": [await shout.ainvoke({"text": "hi"}, config)]}

    graph = StateGraph(Parallel)
    nodes: dict[str, Any] = {"a": ask_in_thread, "b": ask, "c": use_tool}
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return graph


@tool
async def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def _single(node: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(MessagesState)
    graph.add_node("n", node)
    graph.add_edge(START, "n")
    return graph


def talkative(context: BuildContext) -> StateGraph[Any, Any, Any, Any]:
    """One node that makes two model calls and a tool call: between them LangGraph commits nothing."""

    async def talk(state: MessagesState, config: RunnableConfig) -> None:
        await context.model.ainvoke([HumanMessage("x")])
        await context.model.ainvoke([HumanMessage("y")])
        await shout.ainvoke({"text": "hi"}, config)

    return _single(talk)


async def _fails(state: MessagesState) -> None:
    raise KeyError("amount")


async def _asks(state: MessagesState) -> None:
    interrupt("may I?")


async def _swallows(state: MessagesState) -> None:
    """A node that takes its cancellation, however often it comes, for an error of its own."""
    log.warning(STUCK)
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


def _sleeps(state: MessagesState) -> MessagesState:
    """A node that LangGraph runs in a thread, where nothing can cancel it."""
    log.warning(STUCK)
    threading.Event().wait(3600)
    return state


async def _blocks(state: MessagesState) -> None:
    """A node that forgets that it shares the loop."""
    log.warning(STUCK)
    threading.Event().wait(3600)


def _loops() -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(MessagesState)
    graph.add_node("n", lambda state: {})
    graph.add_edge(START, "n")
    graph.add_edge("n", "n")
    return graph


def unbuildable(context: BuildContext) -> Any:
    raise RuntimeError("no licence")


failing = _single(_fails).compile()
asking = _single(_asks)
swallowing = _single(_swallows)
threaded = _single(_sleeps)
blocking = _single(_blocks)
looping = _loops()
