"""2000 takeovers against everything that writes checkpoints: not one row of a stale owner."""

import itertools
import uuid

import pytest

from support.claims import Claimer
from support.stores import Store
from support.takeover import attack
from treadle_api.records import Capability, Event
from treadle_store.checkpoints import ChannelBlob, CheckpointRow, WriteRow, put_checkpoint, put_writes
from treadle_store.pool import Connection
from treadle_store.steps import commit_step

TAKEOVERS = 2000

_number = itertools.count()


def checkpoint() -> CheckpointRow:
    name = f"{next(_number):08x}"
    blobs = (ChannelBlob("xs", name, "bytes", name.encode() * 128),)
    return CheckpointRow("", name, None, {"channel_values": {}, "channel_versions": {"xs": name}}, {}, blobs)


def writes() -> list[WriteRow]:
    task = uuid.uuid4().hex
    return [WriteRow("", "c", task, "", idx, "xs", "bytes", b"x" * 200) for idx in (0, 1, -1)]


@pytest.mark.req("R20")
async def test_no_row_of_a_stale_owner_lands_after_its_token_was_bumped(
    store: Store, claimer: Claimer, admin: Connection
) -> None:
    pool = await store.pool("agent", max_size=3)

    async def step(capability: Capability) -> None:
        event = Event(uuid.uuid4(), "message", {})
        await commit_step(pool, capability, events=[event], writes=writes(), checkpoints=[checkpoint()])

    async def one_checkpoint(capability: Capability) -> None:
        await put_checkpoint(pool, capability, checkpoint())

    async def pending_writes(capability: Capability) -> None:
        await put_writes(pool, capability, writes())

    async def count_rows(capability: Capability) -> int:
        rows: int = await admin.fetchval(
            "SELECT (SELECT count(*) FROM treadle.checkpoints WHERE thread_id = $1 AND token = $2)"
            " + (SELECT count(*) FROM treadle.checkpoint_blobs WHERE thread_id = $1 AND token = $2)"
            " + (SELECT count(*) FROM treadle.checkpoint_writes WHERE thread_id = $1 AND token = $2)"
            " + (SELECT count(*) FROM treadle.run_events WHERE thread_id = $1 AND token = $2)",
            capability.thread_id,
            capability.token,
        )
        return rows

    # Without these the count reads the whole thread, which grows with every takeover.
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "run_events"):
        await admin.execute(f"CREATE INDEX ON treadle.{table} (thread_id, token)")
    seen = await attack(claimer, [step, one_checkpoint, pending_writes], count_rows, takeovers=TAKEOVERS)
    print(seen)
    assert seen.late_rows == 0
    assert seen.takeovers == TAKEOVERS
    assert seen.acknowledged > TAKEOVERS
    assert seen.refused > 0
