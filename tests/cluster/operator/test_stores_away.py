"""Postgres or Redis away, at the start or later: said by name, nothing lost, and over by itself."""

from urllib.parse import urlsplit

import pytest

from support.eventually import eventually
from support.gate import Gate
from support.operator_world import OperatorWorld
from treadle_store import migrate
from treadle_store.errors import StaleToken, StoreFailedOver
from treadle_store.migrations import WANTED_VERSION


def gate_for(dsn: str) -> Gate:
    address = urlsplit(dsn)
    assert address.hostname
    assert address.port
    return Gate(address.hostname, address.port)


def through(gate: Gate, dsn: str) -> str:
    address = urlsplit(dsn)
    return dsn.replace(f"{address.hostname}:{address.port}", f"127.0.0.1:{gate.port}")


async def test_a_store_that_is_away_at_the_start_is_waited_for(world: OperatorWorld) -> None:
    async with gate_for(world.store.operator) as gate:
        await gate.shut()
        dsn = through(gate, world.store.operator)
        await world.operator.start(TREADLE_STORE_DSN=dsn)

        async def unready() -> str:
            code, text = await world.operator.ask("/readyz")
            return text if code == 503 else ""

        assert "store" in await eventually(unready, "readiness says that the store is away")
        assert (await world.operator.ask("/healthz"))[0] == 200
        await world.apply(world.agent_object(), world.run_object())
        await world.reaches("sales", "Pending", "StoreUnavailable")
        await gate.open()
        await world.finish("sales-a1")
        await world.reaches("sales", "Succeeded")
        assert await world.operator.ask("/readyz") == (200, "ok\n")


async def test_a_store_that_goes_in_mid_run_costs_time_only(world: OperatorWorld) -> None:
    async with gate_for(world.store.operator) as gate:
        await world.operator.start(TREADLE_STORE_DSN=through(gate, world.store.operator))
        await world.apply(world.agent_object(), world.run_object())
        agent = await world.agent("sales-a1")
        await world.node.runs(world.namespace, "sales-a1")
        await agent.claim()
        await world.reaches("sales", "Running")
        await gate.shut()
        await agent.settle()
        await world.node.ends(world.namespace, "sales-a1", 0)
        shown = await world.reaches("sales", "Running", "StoreUnavailable")
        assert shown["attempt"] == 1
        await gate.open()
        done = await world.reaches("sales", "Succeeded")
        assert done["attempt"] == 1


async def test_a_schema_older_than_the_program_is_named_with_the_command(world: OperatorWorld) -> None:
    admin = await world.store.pool("admin")
    newest = await admin.fetchrow(
        "DELETE FROM treadle.migrations WHERE version = $1 RETURNING *", WANTED_VERSION
    )
    assert newest is not None
    await world.operator.start()
    await world.apply(world.store_secret(), world.agent_object(), world.run_object())
    said = await world.agent_reaches("helper", "False", "SchemaMismatch")
    assert "treadle-migrate up" in said
    await world.reaches("sales", "Pending", "StoreUnavailable")
    marks = ", ".join(f"${n}" for n in range(1, len(newest) + 1))
    names = ", ".join(newest.keys())
    await admin.execute(f"INSERT INTO treadle.migrations ({names}) VALUES ({marks})", *newest.values())
    await world.finish("sales-a1")
    await world.reaches("sales", "Succeeded")


@pytest.mark.req("R47")
async def test_without_redis_runs_end_all_the_same(world: OperatorWorld, redis_url: str) -> None:
    async with gate_for(redis_url) as gate:
        await gate.shut()
        await world.operator.start(TREADLE_STREAM_URL=through(gate, redis_url))
        await world.apply(world.agent_object(), world.run_object())
        await world.finish("sales-a1")
        await world.reaches("sales", "Succeeded")


async def test_a_nudge_shows_the_claim_before_the_kubelet_does(world: OperatorWorld, redis_url: str) -> None:
    await world.operator.start()
    await world.apply(world.agent_object(), world.run_object())
    agent = await world.agent("sales-a1")
    await world.reaches("sales", "Starting")
    await agent.claim()
    await agent.nudge(redis_url, "claimed")
    await world.reaches("sales", "Running", within=5)
    assert (await world.pod("sales-a1"))["status"]["phase"] == "Pending"


async def test_a_store_that_was_failed_over_is_named_and_goes_on_once_it_is_fenced(
    world: OperatorWorld,
) -> None:
    await world.operator.start()
    await world.apply(world.store_secret(), world.agent_object(), world.run_object())
    agent = await world.agent("sales-a1")
    await world.node.runs(world.namespace, "sales-a1")
    await agent.claim()
    await world.reaches("sales", "Running")
    admin = await world.store.connect("admin")
    # What a promoted standby finds: the row that it got from the old primary names another timeline.
    await admin.execute("UPDATE treadle.store_incarnation SET timeline = 'FFFFFFFF'")
    await world.apply(world.run_object("later", thread="u"))
    for name, phase in (("later", "Pending"), ("sales", "Running")):
        shown = await world.reaches(name, phase, "StoreFailedOver", within=60)
        assert "treadle-migrate fence-all" in world.condition(shown, "Succeeded")["message"]
        assert world.condition(shown, "Succeeded")["status"] == "Unknown"
    await world.apply(world.agent_object("new"))
    assert "treadle-migrate fence-all" in await world.agent_reaches("new", "False", "StoreFailedOver")
    with pytest.raises(StoreFailedOver):
        await agent.settle()

    await migrate.fence_all(admin)
    with pytest.raises(StaleToken):
        await agent.settle()
    await world.node.ends(world.namespace, "sales-a1", 86)
    await world.finish("sales-a2")
    done = await world.reaches("sales", "Succeeded")
    assert (done["attempt"], done["disruptions"]) == (2, 1)
    await world.finish("later-a1")
    await world.reaches("later", "Succeeded")
