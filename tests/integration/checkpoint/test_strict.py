"""What must not be in the store, and what must not come out of it as something else."""

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph

from support.claims import Claimer
from treadle_runtime.checkpointer import TreadleSaver
from treadle_runtime.serde import UnreadableValue
from treadle_store.checkpoints import WriteRow, put_writes
from treadle_store.pool import Connection, Pool


@dataclass
class Undeclared:
    x: int


@dataclass
class Declared:
    x: int


class Loose(TypedDict):
    value: Any


class Typed(TypedDict):
    value: Declared


def one_node(schema: type, value: object, saver: TreadleSaver) -> Any:
    graph: Any = StateGraph(schema)
    graph.add_node("make", lambda _state: {"value": value})
    graph.add_edge(START, "make")
    graph.add_edge("make", END)
    return graph.compile(checkpointer=saver)


def config_of(saver: TreadleSaver, **more: str) -> RunnableConfig:
    return {"configurable": {"thread_id": saver.capability.thread_id, **more}}


async def test_a_blocked_type_in_the_state_fails_loudly(claimer: Claimer, agent_pool: Pool) -> None:
    saver = await TreadleSaver.open(agent_pool, await claimer.new_run())
    graph = one_node(Loose, Undeclared(1), saver)
    await graph.ainvoke({"value": 0}, config_of(saver), durability="sync")
    with pytest.raises(UnreadableValue, match="Undeclared"):
        await graph.aget_state(config_of(saver))


async def test_a_type_of_the_state_schema_comes_back_as_itself(claimer: Claimer, agent_pool: Pool) -> None:
    saver = await TreadleSaver.open(agent_pool, await claimer.new_run())
    graph = one_node(Typed, Declared(1), saver)
    await graph.ainvoke({"value": Declared(0)}, config_of(saver), durability="sync")
    assert (await graph.aget_state(config_of(saver))).values == {"value": Declared(1)}


async def test_a_value_with_a_foreign_tag_is_never_decoded(claimer: Claimer, agent_pool: Pool) -> None:
    saver = await TreadleSaver.open(agent_pool, await claimer.new_run())
    config = await saver.aput(
        config_of(saver, checkpoint_ns=""),
        empty_checkpoint(),
        {"source": "loop", "step": 0, "parents": {}},
        {},
    )
    head = config["configurable"]["checkpoint_id"]
    await put_writes(agent_pool, saver.capability, [WriteRow("", head, "t", "", 0, "xs", "json", b"{}")])
    with pytest.raises(UnreadableValue, match="type tag 'json'"):
        await saver.aget_tuple(config)


async def test_no_secret_of_the_config_reaches_the_database(
    claimer: Claimer, agent_pool: Pool, admin: Connection
) -> None:
    saver = await TreadleSaver.open(agent_pool, await claimer.new_run())
    graph = one_node(Loose, "done", saver)
    config = config_of(saver, api_key="sk-very-secret")
    config["metadata"] = {"token": "sk-very-secret"}
    await graph.ainvoke({"value": 0}, config, durability="sync")
    leaked = await admin.fetchval(
        "SELECT count(*) FROM treadle.checkpoints c WHERE c::text LIKE '%sk-very-secret%'"
    )
    keys = await admin.fetch("SELECT DISTINCT jsonb_object_keys(metadata) AS key FROM treadle.checkpoints")
    assert leaked == 0
    assert {record["key"] for record in keys} <= {"source", "step", "parents", "run_id"}


AWKWARD = {
    "nul": "nul \x00 byte",
    "infinity": float("inf"),
    "big": 2**60,
    "long": "x" * 5000,
    "lines": "one\ntwo",
    "int_keys": {1: "int key"},
    "raw": b"bytes",
    "flag": True,
    "nothing": None,
}
AwkwardState = TypedDict("AwkwardState", dict.fromkeys(AWKWARD, Any))  # type: ignore[misc]


async def test_values_that_json_does_not_know_come_back_equal(claimer: Claimer, agent_pool: Pool) -> None:
    saver = await TreadleSaver.open(agent_pool, await claimer.new_run())
    graph: Any = StateGraph(AwkwardState)
    graph.add_node("make", lambda _state: AWKWARD)
    graph.add_edge(START, "make")
    graph.add_edge("make", END)
    compiled = graph.compile(checkpointer=saver)
    await compiled.ainvoke({"flag": False}, config_of(saver), durability="sync")
    assert (await compiled.aget_state(config_of(saver))).values == AWKWARD


async def test_a_value_that_cannot_be_stored_fails_the_run_at_once(
    claimer: Claimer, agent_pool: Pool
) -> None:
    saver = await TreadleSaver.open(agent_pool, await claimer.new_run())
    graph = one_node(Loose, 2**70, saver)
    with pytest.raises(TypeError, match="Integer exceeds 64-bit range"):
        await graph.ainvoke({"value": 0}, config_of(saver), durability="sync")
