"""The queue in front of a real store: fewer statements than operations, the same order, one effect."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, cast

import asyncpg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from support.claims import Claimer
from treadle_api.records import Capability, Event
from treadle_runtime.checkpointer import TreadleSaver
from treadle_runtime.sender import Limits
from treadle_store.checkpoints import ChannelBlob, CheckpointRow, WriteRow
from treadle_store.errors import StoreRejected
from treadle_store.pool import Connection, Executor, Pool
from treadle_store.steps import commit_step

QUICK = Limits(first_delay=0.001, longest_delay=0.01)


class LosesAnswers:
    """Runs statements and loses the answers of the first `losses` ones, as a cut connection does."""

    def __init__(self, pool: Pool, losses: int) -> None:
        self._pool = pool
        self.losses = losses

    async def fetchrow(self, sql: str, *args: Any) -> Any:
        row = await self._pool.fetchrow(sql, *args)
        if self.losses > 0:
            self.losses -= 1
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return row

    async def fetch(self, sql: str, *args: Any) -> Any:
        return await self._pool.fetch(sql, *args)


def events(count: int) -> list[Event]:
    return [Event(uuid.uuid4(), "message", {"n": n}) for n in range(count)]


def head_of(capability: Capability) -> RunnableConfig:
    return {"configurable": {"thread_id": capability.thread_id, "checkpoint_ns": ""}}


async def test_a_step_costs_fewer_statements_than_operations_and_keeps_its_order(
    claimer: Claimer, agent_pool: Pool, admin: Connection
) -> None:
    capability = await claimer.new_run()
    saver = await TreadleSaver.open(agent_pool, capability)
    sent = events(40)
    calls: list[Callable[[], Awaitable[object]]] = []
    for number, event in enumerate(sent):
        calls.append(lambda event=event: saver.journal([event]))  # type: ignore[misc]
        if number % 4 == 3:
            checkpoint = empty_checkpoint()
            calls.append(
                lambda checkpoint=checkpoint: saver.aput(  # type: ignore[misc]
                    head_of(capability), checkpoint, {"source": "loop", "step": 0, "parents": {}}, {}
                )
            )
    await asyncio.gather(*(call() for call in calls))

    assert len(calls) == 50
    assert saver.sender.statements <= 5
    stored = await admin.fetch(
        "SELECT event_id FROM treadle.run_events WHERE thread_id = $1 ORDER BY seq", capability.thread_id
    )
    assert [record["event_id"] for record in stored] == [event.event_id for event in sent]


@pytest.mark.req("R95")
async def test_a_step_whose_answer_was_lost_has_one_effect(
    claimer: Claimer, agent_pool: Pool, admin: Connection
) -> None:
    capability = await claimer.new_run()
    flaky = LosesAnswers(agent_pool, losses=0)
    saver = await TreadleSaver.open(cast(Executor, flaky), capability, head_seq=0, limits=QUICK)
    await saver.journal(events(2))
    flaky.losses = 2

    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"xs": [1]}
    checkpoint["channel_versions"] = {"xs": "1"}
    answer, config = await asyncio.gather(
        saver.journal(events(3)),
        saver.aput(
            head_of(capability), checkpoint, {"source": "loop", "step": 0, "parents": {}}, {"xs": "1"}
        ),
    )
    flaky.losses = 1
    await saver.aput_writes(config, [("xs", [2]), ("__interrupt__", "x")], "task")

    assert (answer.first, answer.last) == (3, 5)
    for table, rows in (
        ("run_events", 5),
        ("checkpoints", 1),
        ("checkpoint_blobs", 1),
        ("checkpoint_writes", 2),
    ):
        assert await admin.fetchval(f"SELECT count(*) FROM treadle.{table}") == rows
    found = await saver.aget_tuple(config)
    assert found is not None
    assert found.pending_writes is not None
    assert sorted(write[1:] for write in found.pending_writes) == [("__interrupt__", "x"), ("xs", [2])]


@pytest.mark.req("R95")
async def test_commit_step_called_again_says_that_nothing_was_new(claimer: Claimer, agent_pool: Pool) -> None:
    capability = await claimer.new_run()
    sent = events(3)
    step: dict[str, Any] = {
        "events": sent,
        "writes": [WriteRow("", "c1", "t", "", 0, "xs", "null", b"")],
        "checkpoints": [
            CheckpointRow(
                "", f"c{n}", None, {"channel_versions": {}}, {}, (ChannelBlob("xs", str(n), "null", b""),)
            )
            for n in range(3)
        ],
    }
    first = await commit_step(agent_pool, capability, **step)
    again = await commit_step(agent_pool, capability, **step, retry=True)
    assert (first.first, first.last, first.new) == (1, 3, 3)
    assert (again.first, again.last, again.new) == (4, 3, 0)


async def test_a_refused_event_leaves_nothing_of_its_step_and_does_not_stop_the_others(
    claimer: Claimer, agent_pool: Pool, admin: Connection
) -> None:
    capability = await claimer.new_run()
    saver = await TreadleSaver.open(agent_pool, capability)
    good = events(6)
    reserved = Event(uuid.uuid4(), "run.end", {})
    results = await asyncio.gather(
        *(saver.journal([event]) for event in (*good[:3], reserved, *good[3:])), return_exceptions=True
    )
    assert [isinstance(result, StoreRejected) for result in results] == [False] * 3 + [True] + [False] * 3
    stored = await admin.fetch("SELECT event_id FROM treadle.run_events ORDER BY seq")
    assert [record["event_id"] for record in stored] == [event.event_id for event in good]


async def test_a_read_sees_everything_that_was_handed_over_before_it(
    claimer: Claimer, agent_pool: Pool
) -> None:
    capability = await claimer.new_run()
    saver = await TreadleSaver.open(agent_pool, capability)
    config = await saver.aput(
        head_of(capability), empty_checkpoint(), {"source": "loop", "step": 0, "parents": {}}, {}
    )
    writes = [asyncio.create_task(saver.aput_writes(config, [("xs", n)], f"task-{n:02}")) for n in range(20)]
    await asyncio.sleep(0)
    found = await saver.aget_tuple(config)
    assert found is not None
    assert found.pending_writes is not None
    assert [write[2] for write in found.pending_writes] == list(range(20))
    await asyncio.gather(*writes)
