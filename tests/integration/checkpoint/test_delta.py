"""Delta channels: what is not stored is found along the parent pointers, after forks and a prune too."""

import itertools
import random
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from support.claims import Claimer
from treadle_runtime.checkpointer import TreadleSaver
from treadle_store.pool import Connection, Pool

TURNS = 12


def extend(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *itertools.chain.from_iterable(writes)]


class State(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
    turn: int


def build(saver: TreadleSaver) -> Any:
    graph = StateGraph(State)
    graph.add_node("plan", lambda state: {"log": [f"plan {state['turn']}"]})
    graph.add_node("work", lambda task: {"log": [f"work {task['n']} of {task['turn']}"]})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges(
        "plan", lambda state: [Send("work", {"n": n, "turn": state["turn"]}) for n in range(3)], ["work"]
    )
    graph.add_edge("work", END)
    return graph.compile(checkpointer=saver)


async def test_one_query_finds_what_the_walk_over_every_ancestor_finds(
    claimer: Claimer, agent_pool: Pool, admin: Connection
) -> None:
    rng = random.Random(1)
    capability = await claimer.new_run()
    saver = await TreadleSaver.open(agent_pool, capability)
    graph = build(saver)
    head: RunnableConfig = {"configurable": {"thread_id": capability.thread_id, "checkpoint_ns": ""}}
    for turn in range(TURNS):
        start = head
        if turn % 4 == 3:  # fork from somewhere in the history
            history = [found.config async for found in saver.alist(head)]
            start = rng.choice(history)
        await graph.ainvoke({"turn": turn, "log": [f"input {turn}"]}, start, durability="sync")

    checkpoints = [found async for found in saver.alist(head)]
    assert len(checkpoints) > 2 * TURNS
    for found in checkpoints:
        quick = await saver.aget_delta_channel_history(
            config=found.config, channels=["log", "turn", "absent"]
        )
        walked = await BaseCheckpointSaver.aget_delta_channel_history(
            saver, config=found.config, channels=["log", "turn", "absent"]
        )
        assert quick == walked

    state = (await graph.aget_state(head)).values
    await saver.aprune([capability.thread_id])
    kept = await admin.fetchval("SELECT count(*) FROM treadle.checkpoints")
    assert kept < len(checkpoints)
    assert (await graph.aget_state(head)).values == state
    await graph.ainvoke({"turn": 99, "log": ["after"]}, head, durability="sync")
    assert (await graph.aget_state(head)).values["log"][: len(state["log"])] == state["log"]
