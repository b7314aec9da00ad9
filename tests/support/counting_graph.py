"""A small real graph that counts, for tests that kill it: `python -m support.counting_graph`.

Reads one JSON line from standard input (DSN, capability, where to stop), runs the graph until the named step
and hangs there, telling `{"at": step}` on standard output: whoever reads that kills the process.
"""

import asyncio
import json
import operator
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from treadle_api.records import Capability, FencingToken, RunUID, ThreadID
from treadle_runtime.checkpointer import TreadleSaver
from treadle_store.pool import open_pool

Step = Callable[[int], Awaitable[None]]


class Counted(TypedDict, total=False):
    count: int
    log: Annotated[list[str], operator.add]


def counting_graph(saver: TreadleSaver, *, until: int, step: Step) -> CompiledStateGraph[Any, Any, Any, Any]:
    """count -> side -> count ... until `count` is `until`; `step(n)` is awaited inside the n-th count."""

    async def count(state: Counted) -> Counted:
        number = state.get("count", 0) + 1
        await step(number)
        return {"count": number, "log": [f"count {number}"]}

    async def beside(state: Counted) -> Counted:
        return {"log": [f"beside {state['count']}"]}

    graph = StateGraph(Counted)
    graph.add_node("count", count)
    graph.add_node("beside", beside)
    graph.add_edge(START, "count")
    graph.add_edge("count", "beside")
    graph.add_conditional_edges("beside", lambda state: END if state["count"] >= until else "count")
    return graph.compile(checkpointer=saver)


async def _run(given: dict[str, Any]) -> None:
    capability = Capability(
        ThreadID(given["thread"]),
        RunUID(given["run"]),
        FencingToken(given["token"]),
        bytes.fromhex(given["key"]),
    )
    pool = await open_pool(given["dsn"], application="counting-graph")
    saver = await TreadleSaver.open(pool, capability)

    async def step(number: int) -> None:
        if number == given["stop_at"]:
            sys.stdout.write(json.dumps({"at": number}) + "\n")
            sys.stdout.flush()
            await asyncio.Event().wait()

    graph = counting_graph(saver, until=given["until"], step=step)
    await graph.ainvoke(
        given["input"],
        {"configurable": {"thread_id": capability.thread_id}, "recursion_limit": 200},
        durability="sync",
    )


if __name__ == "__main__":
    asyncio.run(_run(json.loads(sys.stdin.readline())))
