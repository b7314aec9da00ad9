"""A holder that lost ownership writes nothing afterwards: takeovers against every write function, in flight.

Eight threads, two writers each that never stop sending, and an operator that takes over at once and again.
What was accepted late is counted afterwards from the commit order (`support.landings`). A control without the
row lock shows that this harness would see it.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from support.invariants import violations
from support.landings import Landing, late, prepare, take_over
from support.store_world import HOLDER, World, events, settle
from support.stores import Store
from treadle_api.records import Capability, Manifest, RunStatus
from treadle_store import agent, checkpoints, runs, steps, workspace
from treadle_store.errors import StaleToken
from treadle_store.events import append_events
from treadle_store.pool import Connection, Executor

TAKEOVERS = 2_000
THREADS = 8
WRITERS = 2

Write = Callable[[Executor, Capability], Awaitable[object]]


def _checkpoint() -> checkpoints.CheckpointRow:
    channel = checkpoints.ChannelBlob("messages", uuid4().hex, "msgpack", b"x" * 200)
    return checkpoints.CheckpointRow("", uuid4().hex, None, {"v": 4}, {"step": 1}, [channel])


def _writes() -> list[checkpoints.WriteRow]:
    return [checkpoints.WriteRow("", "c", uuid4().hex, "", 0, "messages", "msgpack", b"y" * 100)]


_blobs = itertools.count()

WRITES: dict[str, Write] = {
    "append_events": lambda db, cap: append_events(db, cap, events(2)),
    "commit_step": lambda db, cap: steps.commit_step(
        db, cap, events=events(2), writes=_writes(), checkpoints=[_checkpoint()]
    ),
    "commit_step_with_manifest": lambda db, cap: steps.commit_step(
        db, cap, events=events(1), manifest=Manifest(uuid4(), ())
    ),
    "put_checkpoint": lambda db, cap: checkpoints.put_checkpoint(db, cap, _checkpoint()),
    "put_writes": lambda db, cap: checkpoints.put_writes(db, cap, _writes()),
    "put_manifest": lambda db, cap: workspace.put_manifest(db, cap, [], uuid4()),
    "put_blob": lambda db, cap: workspace.put_blob(db, cap, f"file {next(_blobs)}".encode()),
    "heartbeat": agent.heartbeat,
    "claim_run": lambda db, cap: agent.claim_run(db, cap, *HOLDER),
    "begin_finalizing": agent.begin_finalizing,
}


@dataclass(slots=True)
class Contested:
    """One run whose ownership goes from attempt to attempt while writers keep sending for the current one."""

    cap: Capability
    write: Write
    refused: int = 0
    landed: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def write_on(self, connection: Connection) -> None:
        db = Landing(connection).as_executor()
        while not self.over.is_set():
            try:
                await self.write(db, self.cap)
                self.landed.set()
            except StaleToken:
                self.refused += 1
                await asyncio.sleep(0)

    async def take_over(self, operator: Connection, agent_db: Connection, times: int) -> None:
        for attempt in range(2, times + 2):
            cap = await take_over(operator, self.cap, attempt)
            await agent.claim_run(agent_db, cap, *HOLDER)
            self.cap = cap
            # Until a write of this token was accepted there is nothing to take over.
            self.landed.clear()
            await self.landed.wait()
        self.over.set()


async def _contest(store: Store, write: Write, takeovers: int) -> list[Contested]:
    world = World(await store.pool("operator"), await store.pool("agent"))
    fights, work = [], []
    for _ in range(THREADS):
        fight = Contested(await world.start(), write)
        fights.append(fight)
        operator, holder = await store.connect("operator"), await store.connect("agent")
        work.append(fight.take_over(operator, holder, takeovers // THREADS))
        work += [fight.write_on(await store.connect("agent")) for _ in range(WRITERS)]
    await asyncio.gather(*work)
    return fights


@pytest.mark.req("R20")
@pytest.mark.parametrize("function", WRITES)
async def test_no_write_of_a_lost_holder_is_accepted(store: Store, function: str) -> None:
    admin = await store.connect("admin")
    await prepare(admin)

    fights = await _contest(store, WRITES[function], TAKEOVERS)

    seen = await late(admin)
    assert (seen["late"], seen["late_rows"]) == (0, 0)
    assert seen["tokens"] >= TAKEOVERS * 0.9, "too few takeovers met a writer to prove anything"
    assert sum(fight.refused for fight in fights) > TAKEOVERS * 0.1, "no writer was ever too late"
    assert await violations(admin) == {}


@pytest.mark.parametrize("function", ["put_writes", "heartbeat"])
async def test_without_the_row_lock_the_same_harness_sees_late_writes(store: Store, function: str) -> None:
    admin = await store.connect("admin")
    await prepare(admin)
    locked: str = await admin.fetchval("SELECT pg_get_functiondef('treadle.lock_thread'::regproc)")
    assert "FOR NO KEY UPDATE" in locked
    await admin.execute(locked.replace("FOR NO KEY UPDATE", ""))

    await _contest(store, WRITES[function], TAKEOVERS // 4)

    assert (await late(admin))["late"] > 0


async def _race_settlements(store: Store, world: World, trials: int) -> dict[tuple[bool, bool], int]:
    """(settled, taken over) -> how often, with settlement and takeover sent at the same moment."""
    operator, holder = await store.connect("operator"), await store.connect("agent")
    thread = (await world.thread()).thread_id
    seen: dict[tuple[bool, bool], int] = {}
    for _ in range(trials):
        cap = await world.start(thread)
        settled, taken = await asyncio.gather(
            settle(holder, cap), World(operator, holder).take_over(cap), return_exceptions=True
        )
        ends = (not isinstance(settled, BaseException), not isinstance(taken, BaseException))
        if isinstance(settled, BaseException):
            assert isinstance(settled, StaleToken)
        if isinstance(taken, Capability):
            await runs.settle_orphan(
                operator,
                run_id=cap.run_id,
                expected_token=taken.token,
                outcome=RunStatus.ERROR,
                reason="HolderLost",
                message="test",
            )
        seen[ends] = seen.get(ends, 0) + 1
    return seen


@pytest.mark.req("R20", "R24")
async def test_a_settlement_and_a_takeover_never_both_happen(store: Store) -> None:
    world = World(await store.pool("operator"), await store.pool("agent"))

    each = await asyncio.gather(
        *(_race_settlements(store, world, TAKEOVERS // THREADS) for _ in range(THREADS))
    )

    total = {ends: sum(seen.get(ends, 0) for seen in each) for seen in each for ends in seen}
    assert set(total) == {(True, False), (False, True)}, total
    assert await violations(await store.connect("admin")) == {}
