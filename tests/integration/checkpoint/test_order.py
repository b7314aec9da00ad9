"""Which checkpoint is the latest, whatever the clocks say."""

import random

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from support.claims import Claimer
from treadle_runtime.checkpointer import TreadleSaver
from treadle_store import checkpoints as store
from treadle_store.checkpoints import ChannelBlob, CheckpointRow, WriteRow
from treadle_store.pool import Connection, Pool
from treadle_store.statement import capability_args


def row(name: str, *, ns: str = "", parent: str | None = None, value: bytes = b"x") -> CheckpointRow:
    return CheckpointRow(
        ns,
        name,
        parent,
        {"channel_values": {}, "channel_versions": {"xs": name}},
        {"source": "loop", "parents": {}},
        (ChannelBlob("xs", name, "bytes", value),),
    )


@pytest.mark.req("R79")
async def test_the_latest_is_the_highest_token_then_the_highest_id(
    claimer: Claimer, agent_pool: Pool
) -> None:
    first = await claimer.new_run()
    for name in ("1f5", "1f9", "1f7"):  # the predecessor's clock is far ahead
        await store.put_checkpoint(agent_pool, first, row(name))
    second = await claimer.take_over(first)
    head = await store.get_checkpoint(agent_pool, second, "", None)
    assert head is not None
    assert head.id == "1f9"

    for name in ("0a1", "0a3", "0a2"):  # the successor's is behind
        await store.put_checkpoint(agent_pool, second, row(name, parent="1f9"))
    head = await store.get_checkpoint(agent_pool, second, "", None)
    assert head is not None
    assert (head.id, head.token) == ("0a3", second.token)

    page = await store.list_checkpoints(agent_pool, second, ns="")
    assert [found.id for found in page] == ["0a3", "0a2", "0a1", "1f9", "1f7", "1f5"]
    older = await store.list_checkpoints(agent_pool, second, ns="", before="0a1")
    assert [found.id for found in older] == ["1f9", "1f7", "1f5"]


@pytest.mark.req("R95")
async def test_a_repeated_put_keeps_the_rows_token_and_place(claimer: Claimer, agent_pool: Pool) -> None:
    first = await claimer.new_run()
    await store.put_checkpoint(agent_pool, first, row("1f5"))
    await store.put_checkpoint(agent_pool, first, row("1f6"))
    second = await claimer.take_over(first)
    await store.put_checkpoint(agent_pool, second, row("1f5"))  # an old one, put again by the new owner
    head = await store.get_checkpoint(agent_pool, second, "", None)
    again = await store.get_checkpoint(agent_pool, second, "", "1f5")
    assert head is not None
    assert again is not None
    assert (head.id, again.token) == ("1f6", first.token)


async def test_the_saver_of_a_new_attempt_makes_ids_above_everything_the_thread_holds(
    claimer: Claimer, agent_pool: Pool
) -> None:
    first = await claimer.new_run()
    ahead = str(uuid6(clock_seq=1))
    future = "2" + ahead[1:]  # some centuries ahead
    await store.put_checkpoint(agent_pool, first, row(ahead))
    await store.put_checkpoint(agent_pool, first, row(future, ns="child:1"))
    second = await claimer.take_over(first)
    await TreadleSaver.open(agent_pool, second)
    assert empty_checkpoint()["id"] > future


async def test_a_copy_carries_the_targets_token(
    claimer: Claimer, agent_pool: Pool, admin: Connection
) -> None:
    source = await claimer.new_run()
    for name in ("1f5", "1f6"):
        await store.put_checkpoint(agent_pool, source, row(name, value=b"y" * 5000))
    await store.put_writes(agent_pool, source, [WriteRow("", "1f6", "t", "", 0, "xs", "null", b"")])
    target = await claimer.new_run()
    target = await claimer.take_over(await claimer.take_over(target))
    await store.copy_checkpoints(agent_pool, target, source)

    copied = await store.list_checkpoints(agent_pool, target)
    original = await store.list_checkpoints(agent_pool, source)
    assert [(c.id, c.blobs, c.writes) for c in copied] == [(o.id, o.blobs, o.writes) for o in original]
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
        tokens = await admin.fetch(
            f"SELECT DISTINCT token FROM treadle.{table} WHERE thread_id = $1", target.thread_id
        )
        assert [record["token"] for record in tokens] == [target.token]


async def test_special_writes_overwrite_and_ordinary_ones_never_do(
    claimer: Claimer, agent_pool: Pool
) -> None:
    capability = await claimer.new_run()
    await store.put_checkpoint(agent_pool, capability, row("1f5"))

    def pair(data: bytes) -> list[WriteRow]:
        return [
            WriteRow("", "1f5", "t", "", 0, "xs", "bytes", data),
            WriteRow("", "1f5", "t", "", -1, "__error__", "bytes", data),
        ]

    await store.put_writes(agent_pool, capability, pair(b"1"))
    await store.put_writes(agent_pool, capability, pair(b"2") + pair(b"3"))  # twice in one statement, too
    stored = await store.get_checkpoint(agent_pool, capability, "", None)
    assert stored is not None
    assert {(write.channel, write.data) for _, write in stored.writes} == {("xs", b"1"), ("__error__", b"3")}


async def test_pending_writes_come_in_the_order_of_live_execution(claimer: Claimer, agent_pool: Pool) -> None:
    capability = await claimer.new_run()
    await store.put_checkpoint(agent_pool, capability, row("1f5"))
    keys = [("~b", "t1", 1), ("~a", "t9", 0), ("~b", "t1", 0), ("", "t5", 0), ("~b", "t0", 0)]
    await store.put_writes(
        agent_pool,
        capability,
        [WriteRow("", "1f5", task, path, idx, f"{path}{task}{idx}", "null", b"") for path, task, idx in keys],
    )
    stored = await store.get_checkpoint(agent_pool, capability, "", None)
    assert stored is not None
    assert [write.channel for _, write in stored.writes] == [f"{p}{t}{i}" for p, t, i in sorted(keys)]


async def test_the_history_is_paged_without_a_gap(claimer: Claimer, agent_pool: Pool) -> None:
    capability = await claimer.new_run()
    names = [f"{n:04x}" for n in range(230)]
    for name in names:
        await store.put_checkpoint(agent_pool, capability, row(name, ns="a" if int(name, 16) % 2 else ""))
    saver = await TreadleSaver.open(agent_pool, capability)
    everything: RunnableConfig = {"configurable": {"thread_id": capability.thread_id}}
    seen = [found.checkpoint["channel_versions"]["xs"] async for found in saver.alist(everything)]
    assert seen == names[::-1]
    some = [found.config async for found in saver.alist(everything, limit=150)]
    assert len(some) == 150


async def test_a_checkpoint_is_read_alone_as_it_stands_in_the_history(
    claimer: Claimer, agent_pool: Pool
) -> None:
    capability = await claimer.new_run()
    versions = {"xs": "1", "ys": "2", "unset": "3"}
    blobs = [ChannelBlob("xs", "1", "bytes", b"x" * 100_000), ChannelBlob("ys", "2", "null", b"")]
    put = CheckpointRow("", "1f5", None, {"channel_versions": versions}, {"source": "loop"}, blobs)
    await store.put_checkpoint(agent_pool, capability, put)
    await store.put_checkpoint(agent_pool, capability, row("1f6", parent="1f5"))
    await store.put_writes(
        agent_pool,
        capability,
        [WriteRow("", "1f5", f"t{n}", "~a", n, "xs", "bytes", b"w" * n) for n in range(3)],
    )
    history = await store.list_checkpoints(agent_pool, capability)
    alone = [await store.get_checkpoint(agent_pool, capability, "", found.id) for found in history]
    assert alone == history
    assert await store.get_checkpoint(agent_pool, capability, "", "1f7") is None


async def test_a_value_that_is_deleted_while_it_is_sent_arrives_whole(
    claimer: Claimer, agent_pool: Pool, admin: Connection
) -> None:
    capability = await claimer.new_run()
    large = random.Random(5).randbytes(300_000)  # stored outside of its row, in pieces
    await store.put_checkpoint(agent_pool, capability, row("1f5", value=large))
    async with agent_pool.acquire() as reader, reader.transaction():
        cursor = await reader.cursor(
            "SELECT * FROM treadle.read_checkpoint($1, $2, $3, $4, '', NULL)", *capability_args(capability)
        )
        head = await cursor.fetch(1)
        assert head[0]["checkpoint_id"] == "1f5"
        await admin.execute("DELETE FROM treadle.checkpoint_blobs WHERE thread_id = $1", capability.thread_id)
        await admin.execute("VACUUM treadle.checkpoint_blobs")
        (value,) = await cursor.fetch(10)
        assert value["data"] == large
