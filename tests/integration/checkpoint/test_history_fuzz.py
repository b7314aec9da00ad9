"""Random histories on our saver and on LangGraph's in-memory one: every checkpoint must agree.

Ours changes hands between operations, so that tokens, skewed clocks and several savers take part.
"""

import operator
import random
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Interrupt, Overwrite, Send, interrupt

from support.claims import Claimer
from treadle_api.records import Capability
from treadle_runtime.checkpointer import TreadleSaver
from treadle_runtime.serde import StrictSerializer
from treadle_store.pool import Pool

OPERATIONS = 12


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    total: int
    title: str
    nested: dict[str, Any]


def build(saver: BaseCheckpointSaver[str]) -> Any:
    """A fan-out with parallel writers, a node that sometimes asks, and one that sometimes fails."""

    def plan(state: State) -> dict[str, Any]:
        return {"total": state.get("total", 0) + 1, "log": [f"plan {state.get('title', '')}"]}

    def branch(state: State) -> list[Send]:
        return [Send("work", {"n": n, "total": state["total"]}) for n in range(state["total"] % 3 + 1)]

    def work(task: dict[str, int]) -> dict[str, Any]:
        return {"log": [f"work {task['n']} of {task['total']}"]}

    def ask(state: State) -> dict[str, Any]:
        if state["total"] % 4 == 2:
            return {"log": [f"answer {interrupt({'total': state['total']})}"]}
        if state["total"] % 5 == 4 and state.get("title") != "mended":
            raise ZeroDivisionError
        return {"nested": {"seen": list(state["log"]), "n": state["total"]}}

    graph: Any = StateGraph(State)
    graph.add_node("plan", plan)
    graph.add_node("work", work)
    graph.add_node("ask", ask)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", branch, ["work"])
    graph.add_edge("work", "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=saver)


@dataclass
class Side:
    """One of the two: a graph on a saver, and the history it has."""

    graph: Any
    thread_id: str

    def config(self, checkpoint_id: str | None = None) -> RunnableConfig:
        configurable = {"thread_id": self.thread_id, "checkpoint_ns": ""}
        if checkpoint_id is not None:
            configurable["checkpoint_id"] = checkpoint_id
        return {"configurable": configurable}

    async def ids(self) -> list[str]:
        """Newest first."""
        return [
            s.config["configurable"]["checkpoint_id"]
            async for s in self.graph.aget_state_history(self.config())
        ]

    async def apply(self, kind: str, value: str, position: int) -> str:
        """One operation; where it goes is given as a position in the history, since ids differ."""
        ids = await self.ids()
        addressed = self.config(ids[position % len(ids)]) if ids else self.config()
        match kind:
            case "turn":
                return await self._invoke({"title": value, "log": [value]}, self.config())
            case "continue":
                return await self._invoke(None, self.config()) if ids else "nothing"
            case "resume":
                return await self._invoke(Command(resume=value), self.config()) if ids else "nothing"
            case "fork":
                return await self._invoke({"title": value}, addressed)
            case "update":
                await self.graph.aupdate_state(
                    self.config(), {"log": [value], "total": position}, as_node="ask"
                )
            case "update an old one":
                await self.graph.aupdate_state(addressed, {"title": value}, as_node="ask")
            case "overwrite":
                await self.graph.aupdate_state(self.config(), {"log": Overwrite([value])}, as_node="ask")
        return kind

    async def _invoke(self, given: object, config: RunnableConfig) -> str:
        try:
            result = await self.graph.ainvoke(given, config, durability="sync")
        except ZeroDivisionError:
            return "failed"
        return str(
            [(i.value, i.id) for i in result.get("__interrupt__", ()) if isinstance(i, Interrupt)] != []
        )

    async def history(self) -> list[tuple[Any, ...]]:
        """Every checkpoint, ids replaced by positions."""
        states = [state async for state in self.graph.aget_state_history(self.config())]
        place = {s.config["configurable"]["checkpoint_id"]: n for n, s in enumerate(states)}
        return [
            (
                s.metadata["step"],
                s.metadata["source"],
                s.values,
                s.next,
                place.get(s.parent_config["configurable"]["checkpoint_id"]) if s.parent_config else None,
                [(t.name, t.error, [i.value for i in t.interrupts], t.result) for t in s.tasks],
            )
            for s in states
        ]


KINDS = ("turn", "turn", "continue", "resume", "fork", "update", "update an old one", "overwrite")


@pytest.mark.parametrize("seed", range(4))
async def test_every_checkpoint_of_a_random_history_agrees_with_the_reference(
    claimer: Claimer, agent_pool: Pool, seed: int
) -> None:
    rng = random.Random(seed)
    capability: Capability = await claimer.new_run()
    reference = Side(build(InMemorySaver(serde=StrictSerializer())), "reference")
    ours = Side(build(await TreadleSaver.open(agent_pool, capability)), capability.thread_id)
    done = []
    for number in range(OPERATIONS):
        kind, value, position = rng.choice(KINDS), rng.choice(["mended", f"v{number}"]), rng.randrange(40)
        if rng.random() < 0.4:
            capability = await claimer.take_over(capability)
            ours = Side(build(await TreadleSaver.open(agent_pool, capability)), capability.thread_id)
        done.append((kind, value, position))
        answers = [await side.apply(kind, value, position) for side in (reference, ours)]
        assert answers[0] == answers[1], done
        assert await ours.history() == await reference.history(), done
