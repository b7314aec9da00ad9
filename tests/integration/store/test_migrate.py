"""Migrations: what `treadle-migrate` promises to whoever installs or updates."""

import asyncio
from pathlib import Path

import pytest

import treadle_store
from support.stores import Server, Store
from treadle_store import migrate
from treadle_store.errors import SchemaMismatch, StoreRejected
from treadle_store.migrations import MIGRATIONS, WANTED_VERSION
from treadle_store.pool import check_schema
from treadle_store.schema_dump import dump_schema


async def test_the_committed_schema_is_what_the_migrations_make(store: Store) -> None:
    committed = (Path(treadle_store.__file__).parent / "schema.sql").read_text()

    dumped = await dump_schema(await store.connect("admin"))

    assert dumped == committed, "refresh it: make generate"


async def test_a_second_up_changes_nothing(store: Store) -> None:
    admin = await store.connect("admin")
    assert await migrate.migrate(admin) == []
    assert await migrate.problems(admin) == []


async def test_two_migrations_at_once_apply_each_file_once(store_server: Server) -> None:
    database = "treadle_two_at_once"
    server = await migrate.connect(store_server.admin_dsn, wait=5)
    await server.execute(f"CREATE DATABASE {database}")
    try:
        both = [await migrate.connect(store_server.dsn(database), wait=5) for _ in range(2)]
        done = await asyncio.gather(*(migrate.migrate(connection) for connection in both))
        assert sorted(len(applied) for applied in done) == [0, len(MIGRATIONS)]
        for connection in both:
            await connection.close()
    finally:
        await server.execute(f"DROP DATABASE {database} WITH (FORCE)")
        await server.close()


@pytest.mark.parametrize("program", ["operator", "gateway", "agent"])
async def test_every_program_may_ask_for_the_version(store: Store, program: str) -> None:
    assert await check_schema(await store.pool(program)) == WANTED_VERSION


async def test_a_program_refuses_an_older_schema_and_names_the_command(store: Store) -> None:
    admin = await store.connect("admin")
    await admin.execute("DELETE FROM treadle.migrations WHERE version = $1", WANTED_VERSION)

    with pytest.raises(SchemaMismatch, match="treadle-migrate up") as refused:
        await check_schema(admin)

    assert refused.value.have < refused.value.want == WANTED_VERSION


async def test_a_program_refuses_a_database_without_our_schema(store: Store) -> None:
    admin = await store.connect("admin")
    await admin.execute("DROP SCHEMA treadle CASCADE")

    with pytest.raises(SchemaMismatch, match="version 0"):
        await check_schema(admin)


async def test_an_edited_migration_is_refused_by_name(store: Store) -> None:
    admin = await store.connect("admin")
    await admin.execute("UPDATE treadle.migrations SET digest = 'other' WHERE version = 1")

    with pytest.raises(StoreRejected, match="0001_core"):
        await migrate.migrate(admin)


async def test_check_names_what_stands_open_and_how_to_close_it(store: Store) -> None:
    admin = await store.connect("admin")
    await admin.execute("GRANT EXECUTE ON FUNCTION pg_notify(text, text) TO PUBLIC")

    found = await migrate.problems(admin)

    assert [line.split(" ", 2)[1] for line in found] == ["wal-and-queue"]
    assert "REVOKE EXECUTE" in found[0]


async def test_an_owner_of_the_database_who_is_no_superuser_can_migrate(store_server: Server) -> None:
    database, owner = "treadle_managed", "treadle_test_dba"
    server = await migrate.connect(store_server.admin_dsn, wait=5)
    password = store_server.passwords["agent"]
    await server.execute(f"CREATE ROLE {owner} LOGIN CREATEROLE PASSWORD '{password}'")
    await server.execute(f"CREATE DATABASE {database} OWNER {owner}")
    address = store_server.admin_dsn.rsplit("@", 1)[1].split("/", 1)[0]
    try:
        managed = await migrate.connect(f"postgresql://{owner}:{password}@{address}/{database}", wait=5)
        assert len(await migrate.migrate(managed)) == len(MIGRATIONS)
        assert await migrate.migrate(managed) == []
        open_now = {line.split(" ", 2)[1] for line in await migrate.problems(managed)}
        await managed.close()

        assert "temporary-objects" not in open_now, "the owner of a database may close that itself"
        assert {"signals", "advisory-locks", "activity", "plpgsql"} <= open_now
    finally:
        await server.execute(f"DROP DATABASE {database} WITH (FORCE)")
        await server.execute(f"REVOKE treadle_owner FROM {owner}")
        await server.execute(f"DROP ROLE {owner}")
        await server.close()
