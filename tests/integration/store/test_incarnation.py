"""After a failover or a restore no owner from before writes anything, until and after fencing."""

import pytest

from support.invariants import violations
from support.store_world import World, events
from support.stores import Store
from treadle_api.records import LossClass
from treadle_store import agent, migrate, runs, threads, workspace
from treadle_store.errors import StaleToken, StoreFailedOver
from treadle_store.events import append_events

CHANGES = {
    "another timeline": "UPDATE treadle.store_incarnation SET timeline = '000000FF'",
    "another server": "UPDATE treadle.store_incarnation SET system_identifier = system_identifier + 1",
    "no row at all": "DELETE FROM treadle.store_incarnation",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_every_function_refuses_on_another_incarnation(store: Store, change: str) -> None:
    world = World(await store.pool("operator"), await store.pool("agent"))
    cap = await world.start()
    admin = await store.connect("admin")
    await admin.execute(CHANGES[change])
    functions = await admin.fetch(
        """SELECT p.proname, array_agg(format_type(t.oid, NULL) ORDER BY t.n) AS types
             FROM pg_proc p, unnest(p.proargtypes) WITH ORDINALITY t (oid, n)
            WHERE p.pronamespace = 'treadle'::regnamespace
              AND (has_function_privilege('treadle_agent', p.oid, 'EXECUTE')
                   OR has_function_privilege('treadle_operator', p.oid, 'EXECUTE'))
              AND p.proname NOT IN ('fence_all', 'end_blockers', 'end_old_transactions')
            GROUP BY p.oid, p.proname"""
    )
    assert len(functions) >= 25

    for name, types in functions:
        nulls = ", ".join(f"NULL::{kind}" for kind in types)
        with pytest.raises(Exception, match="failed over or restored") as refused:
            await admin.fetch(f"SELECT * FROM treadle.{name}({nulls})")
        assert getattr(refused.value, "sqlstate", None) == "TR002", name
    with pytest.raises(StoreFailedOver, match="fence-all"):
        await agent.heartbeat(world.agent, cap)
    with pytest.raises(StoreFailedOver, match="fence-all"):
        await runs.confirm_incarnation(world.operator)


@pytest.mark.parametrize("after_restore", [False, True])
async def test_fencing_makes_the_server_current_and_every_old_owner_stale(
    store: Store, after_restore: bool
) -> None:
    world = World(await store.pool("operator"), await store.pool("agent"))
    caps = [await world.start() for _ in range(3)]
    admin = await store.connect("admin")
    await admin.execute("UPDATE treadle.store_incarnation SET timeline = '000000FF'")

    assert await migrate.fence_all(admin, after_restore=after_restore) == (3, 2)
    await runs.confirm_incarnation(world.operator)

    for cap in caps:
        with pytest.raises(StaleToken):
            await append_events(world.agent, cap, events(1))
        with pytest.raises(StaleToken):
            await workspace.put_blob(world.agent, cap, b"late")
    record = (await runs.read_runs(world.operator, [caps[0].run_id]))[caps[0].run_id]
    assert record.log == "1i2"
    assert record.thread_token - caps[0].token == (2**32 if after_restore else 1)
    next_one = await world.assign(record.run_id, 2, record.thread_token, loss=LossClass.DISRUPTION)
    assert next_one is not None
    thread = await threads.read_thread(world.operator, caps[0].thread_id)
    assert thread is not None
    assert thread.fencing_token == next_one.token
    assert await violations(admin) == {}
