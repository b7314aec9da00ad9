"""An agent that holds its locks, frozen or hostile, keeps nobody from taking its thread over (R92).

Every attacker here has set its timeouts away, as a client may.
"""

import asyncio
import time
from uuid import UUID, uuid4

import asyncpg
import pytest

from support.eventually import eventually
from support.store_world import World, events, settle
from support.stores import Store
from treadle_api.records import AdmitFile, Capability, LossClass, RunStatus
from treadle_store import agent, threads, workspace
from treadle_store.assign import Assigner
from treadle_store.errors import StaleToken, StoreError, StoreUnavailable
from treadle_store.events import append_events
from treadle_store.pool import Connection
from treadle_store.runs import request_cancel

pytestmark = pytest.mark.req("R92")

SOON = 5.0
"""Seconds; the attackers would hold on for ever."""


@pytest.fixture
async def assigner(store: Store) -> Assigner:
    return Assigner(await store.pool("operator"), await store.pool("operator", max_size=1))


async def _hold(connection: Connection, cap: Capability) -> None:
    """Leaves the thread's row locked in a transaction that nothing ends."""
    await connection.execute(
        "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0; BEGIN"
    )
    await append_events(connection, cap, events(1))


async def _start(store: Store) -> tuple[World, Capability, Connection]:
    world = World(await store.pool("operator"), await store.pool("agent"))
    return world, await world.start(), await store.connect("agent")


async def test_a_takeover_ends_the_session_that_holds_the_thread(store: Store, assigner: Assigner) -> None:
    _, cap, attacker = await _start(store)
    await _hold(attacker, cap)

    async with asyncio.timeout(SOON):
        taken = await assigner.assign_run(
            run_id=cap.run_id, attempt=2, expected_token=cap.token, pod="next", loss=LossClass.DISRUPTION
        )

    assert taken is not None
    with pytest.raises((StaleToken, StoreUnavailable)):
        await append_events(attacker, cap, events(1))


async def test_without_the_watching_connection_the_same_takeover_waits(store: Store) -> None:
    world, cap, attacker = await _start(store)
    await _hold(attacker, cap)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await world.assign(cap.run_id, 2, cap.token, loss=LossClass.DISRUPTION)


async def test_settling_and_retiring_end_it_too(store: Store, assigner: Assigner) -> None:
    world, cap, attacker = await _start(store)
    await _hold(attacker, cap)
    async with asyncio.timeout(SOON):
        settled = await assigner.settle_orphan(
            run_id=cap.run_id,
            expected_token=cap.token,
            outcome=RunStatus.CANCELLED,
            reason="Deleted",
            message="The Run was deleted.",
        )
    assert settled is not None
    assert settled.outcome is RunStatus.CANCELLED

    again = await world.start(cap.thread_id)
    await _hold(await store.connect("agent"), again)
    thread = await threads.read_thread(world.operator, cap.thread_id)
    assert thread is not None
    async with asyncio.timeout(SOON):
        assert await assigner.retire_thread("team", thread.thread_key)


async def test_a_held_blob_keeps_no_run_from_being_admitted(store: Store, assigner: Assigner) -> None:
    world, cap, attacker = await _start(store)
    foreseen = b"the content of a ConfigMap that everybody knows"
    await _hold(attacker, cap)
    await workspace.put_blob(attacker, cap, foreseen)
    thread = (await world.thread()).thread_id
    admission = world.admission(thread, files=(AdmitFile("known.txt", foreseen),))

    async with asyncio.timeout(SOON):
        assert (await assigner.admit_run(admission)).result == "admitted"


async def test_holders_that_reconnect_at_once_do_not_starve_a_takeover(
    store: Store, assigner: Assigner
) -> None:
    _, cap, _ = await _start(store)
    over = asyncio.Event()
    held = 0

    async def hold_again_and_again() -> None:
        nonlocal held
        while not over.is_set():
            connection = await store.connect("agent")
            try:
                await _hold(connection, cap)
                held += 1
                await connection.fetchval("SELECT pg_sleep(60)")
            except StaleToken:
                return
            except (StoreError, asyncpg.PostgresError, asyncpg.InterfaceError):
                continue  # its session was ended: again
            finally:
                connection.terminate()

    attackers = [asyncio.create_task(hold_again_and_again()) for _ in range(12)]
    await eventually(lambda: _true(held > 0), "an attacker holds the thread")
    begun = time.monotonic()
    async with asyncio.timeout(SOON * 3):
        taken = await assigner.assign_run(
            run_id=cap.run_id, attempt=2, expected_token=cap.token, pod="next", loss=LossClass.DISRUPTION
        )
    over.set()
    await asyncio.gather(*attackers)

    assert taken is not None
    assert time.monotonic() - begun < SOON * 3


async def _true(condition: bool) -> bool:
    return condition


async def test_a_cancel_never_waits_behind_a_held_thread(store: Store) -> None:
    world, cap, attacker = await _start(store)
    await _hold(attacker, cap)

    async with asyncio.timeout(SOON):
        assert await request_cancel(world.operator, cap.run_id, "keep", "Cancelled") == (
            RunStatus.RUNNING,
            "keep",
        )


async def test_a_held_thread_is_nobody_else_s_concern(store: Store) -> None:
    world, cap, attacker = await _start(store)
    await _hold(attacker, cap)
    victim = await world.start()

    async with asyncio.timeout(SOON):
        await append_events(world.agent, victim, events(3))
        assert (await settle(world.agent, victim)).result == "settled"


async def test_reads_hold_nothing(store: Store, assigner: Assigner) -> None:
    world, cap, attacker = await _start(store)
    sha256 = await workspace.put_blob(world.agent, cap, b"data")
    await attacker.execute("BEGIN")
    await workspace.get_blob(attacker, cap, sha256)
    await workspace.missing_blobs(attacker, cap, [sha256])

    taken = await world.assign(cap.run_id, 2, cap.token, loss=LossClass.DISRUPTION)

    assert taken is not None
    assert await attacker.fetchval("SELECT 1") == 1, "nobody had to end this session"


async def test_old_transactions_of_agents_are_ended_and_no_one_else_s(
    store: Store, assigner: Assigner
) -> None:
    _, cap, attacker = await _start(store)
    admin = await store.connect("admin")
    await _hold(attacker, cap)
    await admin.execute("BEGIN")
    await admin.fetchval("SELECT 1")

    async def ended() -> bool:
        return await assigner.end_old_transactions(seconds=0) > 0

    await eventually(ended, "the agent's transaction is old enough")

    with pytest.raises(StoreError):
        await agent.heartbeat(attacker, cap)
    assert await admin.fetchval("SELECT 1") == 1


async def test_a_settlement_repeated_by_its_agent_after_its_session_was_ended(store: Store) -> None:
    """Terminated at any moment of the statement: the retry finds it done or does it."""
    world = World(await store.pool("operator"), await store.pool("agent"))
    admin = await store.connect("admin")
    results = set()
    for trial in range(60):
        cap, ids = await world.start(), (uuid4(), uuid4())
        connection = await store.connect("agent")

        async def call(db: Connection, cap: Capability = cap, ids: tuple[UUID, UUID] = ids) -> str:
            answer = await agent.settle_run(
                db,
                cap,
                outcome=RunStatus.SUCCESS,
                end={},
                receipt={},
                end_event_id=ids[0],
                delivery_event_id=ids[1],
            )
            return answer.result

        first = asyncio.ensure_future(call(connection))
        for _ in range(trial % 6):
            await asyncio.sleep(0)
        await admin.fetchval("SELECT pg_terminate_backend($1)", connection.get_server_pid())
        lost = isinstance((await asyncio.gather(first, return_exceptions=True))[0], StoreUnavailable)
        again = await call(await store.connect("agent"))
        results.add((lost, again))
        assert again == "already" or lost
        counts = "SELECT count(*) FROM treadle.receipts WHERE run_id = $1"
        assert await admin.fetchval(counts, cap.run_id) == 1
    assert (False, "settled") not in results
