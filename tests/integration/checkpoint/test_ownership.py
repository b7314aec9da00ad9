"""A holder that lost ownership changes nothing, by whatever door it comes."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointMetadata, empty_checkpoint

from support.claims import Claimer
from treadle_api.records import Capability, Event, FencingToken
from treadle_runtime.checkpointer import TreadleSaver
from treadle_runtime.sender import StepSender
from treadle_store import checkpoints as store
from treadle_store.errors import StaleToken, StoreError, StoreFailedOver
from treadle_store.pool import Connection, Pool

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "run_events")


async def content(admin: Connection) -> list[object]:
    """Everything that a saver may change, as text."""
    return [
        await admin.fetchval(
            f"SELECT coalesce(string_agg(x::text, E'\\n' ORDER BY x::text), '') FROM treadle.{t} x"
        )
        for t in TABLES
    ]


def at(saver: TreadleSaver, checkpoint_id: str | None = None) -> RunnableConfig:
    configurable: dict[str, str] = {"thread_id": saver.capability.thread_id, "checkpoint_ns": ""}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def loop_metadata(step: int) -> CheckpointMetadata:
    return {"source": "loop", "step": step, "parents": {}}


async def fill(saver: TreadleSaver) -> str:
    """Two checkpoints with a blob and a pending write; returns the head's id."""
    parent: str | None = None
    for step in range(2):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"xs": [step]}
        checkpoint["channel_versions"] = {"xs": f"{step}"}
        await saver.aput(at(saver, parent), checkpoint, loop_metadata(step), {"xs": f"{step}"})
        parent = checkpoint["id"]
    assert parent is not None
    await saver.aput_writes(at(saver, parent), [("xs", [9])], "task")
    await saver.journal([Event(uuid.uuid4(), "message", {"text": "hello"})])
    return parent


async def put(saver: TreadleSaver, head: str) -> None:
    await saver.aput(at(saver, head), empty_checkpoint(), loop_metadata(5), {})


async def overwrite_the_head(saver: TreadleSaver, head: str) -> None:
    checkpoint = empty_checkpoint()
    checkpoint["id"] = head
    await saver.aput(at(saver), checkpoint, loop_metadata(5), {})


OPERATIONS: dict[str, Callable[[TreadleSaver, str], Awaitable[object]]] = {
    "put": put,
    "put over the head": overwrite_the_head,
    "put_writes": lambda s, head: s.aput_writes(at(s, head), [("xs", [1])], "late"),
    "put_writes of a special channel": lambda s, head: s.aput_writes(
        at(s, head), [("__error__", "e")], "task"
    ),
    "journal": lambda s, head: s.journal([Event(uuid.uuid4(), "message", {})]),
    "delete_thread": lambda s, head: s.adelete_thread(s.capability.thread_id),
    "delete_for_runs": lambda s, head: s.adelete_for_runs([s.capability.run_id]),
    "prune to the latest": lambda s, head: s.aprune([s.capability.thread_id]),
    "prune everything": lambda s, head: s.aprune([s.capability.thread_id], strategy="delete"),
    "get_tuple": lambda s, head: s.aget_tuple(at(s)),
    "list": lambda s, head: anext(s.alist(at(s))),
    "delta history": lambda s, head: s.aget_delta_channel_history(config=at(s), channels=["xs"]),
    "raw put_checkpoint": lambda s, head: store.put_checkpoint(
        s._db, s.capability, store.CheckpointRow("", "late", None, {"channel_versions": {}}, {})
    ),
    "raw put_writes": lambda s, head: store.put_writes(
        s._db, s.capability, [store.WriteRow("", head, "late", "", 0, "xs", "null", b"")]
    ),
    "copy from it": lambda s, head: store.copy_checkpoints(s._db, s.capability, s.capability),
}


@pytest.mark.req("R20")
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
async def test_a_stale_owner_is_refused_and_changes_nothing(
    claimer: Claimer,
    agent_pool: Pool,
    admin: Connection,
    operation: Callable[[TreadleSaver, str], Awaitable[object]],
) -> None:
    told: list[StoreError] = []
    capability = await claimer.new_run()
    saver = await TreadleSaver.open(agent_pool, capability, on_stale=told.append)
    head = await fill(saver)
    await claimer.take_over(capability)
    before = await content(admin)

    with pytest.raises(StaleToken):
        await operation(saver, head)

    assert await content(admin) == before
    assert len(told) <= 1


@pytest.mark.req("R93")
async def test_another_incarnation_of_the_store_answers_nothing(
    claimer: Claimer, agent_pool: Pool, admin: Connection
) -> None:
    capability = await claimer.new_run()
    head = await fill(await TreadleSaver.open(agent_pool, capability))
    before = await content(admin)
    await admin.execute("UPDATE treadle.store_incarnation SET timeline = 'FFFFFFFF'")
    for operation in OPERATIONS.values():
        told: list[StoreError] = []
        sender = StepSender(agent_pool, capability, on_stale=told.append)
        saver = TreadleSaver(agent_pool, capability, sender)
        with pytest.raises(StoreFailedOver):
            await operation(saver, head)
        assert told in ([], [sender.lost])
    assert await content(admin) == before


async def test_after_the_first_refusal_every_clone_is_dead_without_asking(
    claimer: Claimer, agent_pool: Pool
) -> None:
    capability = await claimer.new_run()
    saver = await TreadleSaver.open(agent_pool, capability)
    head = await fill(saver)
    clone = saver.with_allowlist([("some.module", "Type")])
    assert clone is not saver
    await claimer.take_over(capability)
    with pytest.raises(StaleToken):
        await clone.aput_writes(at(saver, head), [("xs", [1])], "late")
    statements = saver.sender.statements
    with pytest.raises(StaleToken):
        await put(saver, head)
    assert saver.sender.statements == statements


@pytest.mark.parametrize("what", ["token", "key", "run", "thread"])
async def test_every_part_of_the_capability_must_fit(
    claimer: Claimer, agent_pool: Pool, admin: Connection, what: str
) -> None:
    mine, other = await claimer.new_run(), await claimer.new_run()
    forged: Capability = {
        "token": replace(mine, token=FencingToken(mine.token + 1)),
        "key": replace(mine, fence_key=other.fence_key),
        "run": replace(mine, run_id=other.run_id),
        "thread": replace(mine, thread_id=other.thread_id),
    }[what]
    saver = await TreadleSaver.open(agent_pool, mine)
    await fill(saver)
    before = await content(admin)
    with pytest.raises(StaleToken):
        await store.put_checkpoint(
            agent_pool, forged, store.CheckpointRow("", "x", None, {"channel_versions": {}}, {})
        )
    with pytest.raises(StaleToken):
        await store.get_checkpoint(agent_pool, forged, "", None)
    assert await content(admin) == before


async def test_a_copy_needs_both_threads(claimer: Claimer, agent_pool: Pool, admin: Connection) -> None:
    source, target = await claimer.new_run(), await claimer.new_run()
    await fill(await TreadleSaver.open(agent_pool, source))
    before = await content(admin)
    for forged_target, forged_source in (
        (target, replace(source, fence_key=target.fence_key)),
        (replace(target, token=FencingToken(target.token + 1)), source),
    ):
        with pytest.raises(StaleToken):
            await store.copy_checkpoints(agent_pool, forged_target, forged_source)
    assert await content(admin) == before


async def test_two_copies_in_opposite_directions_do_not_block_each_other(
    claimer: Claimer, agent_pool: Pool
) -> None:
    one, two = await claimer.new_run(), await claimer.new_run()
    await fill(await TreadleSaver.open(agent_pool, one))
    await fill(await TreadleSaver.open(agent_pool, two))
    copies = [store.copy_checkpoints(agent_pool, *pair) for pair in ((one, two), (two, one)) * 10]
    await asyncio.wait_for(asyncio.gather(*copies), timeout=30)


async def test_another_threads_config_is_a_clear_error(claimer: Claimer, agent_pool: Pool) -> None:
    saver = await TreadleSaver.open(agent_pool, await claimer.new_run())
    with pytest.raises(ValueError, match="one saver serves one run"):
        await saver.aget_tuple({"configurable": {"thread_id": "another", "checkpoint_ns": ""}})
    with pytest.raises(ValueError, match="one saver serves one run"):
        await saver.aprune(["another"])


@pytest.mark.parametrize("method", ["get_tuple", "list", "put", "put_writes", "delete_thread"])
async def test_the_synchronous_half_says_what_to_call_instead(
    claimer: Claimer, agent_pool: Pool, method: str
) -> None:
    saver = await TreadleSaver.open(agent_pool, await claimer.new_run())
    with pytest.raises(NotImplementedError, match=f"call a{method}"):
        getattr(saver, method)({})
