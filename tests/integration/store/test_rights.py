"""What each role may do in the database: no more than its functions, and nothing by way of PUBLIC (R92)."""

import asyncpg
import pytest

from support.stores import Store

pytestmark = pytest.mark.req("R92")


async def test_no_table_and_no_foreign_function_is_open(store: Store) -> None:
    admin, attacker = await store.connect("admin"), await store.connect("agent")
    tables = await admin.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'treadle'::regnamespace AND relkind = 'r'"
    )
    for (table,) in tables:
        for sql in (
            "SELECT * FROM treadle.{}",
            "DELETE FROM treadle.{}",
            "INSERT INTO treadle.{} DEFAULT VALUES",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await attacker.execute(sql.format(table))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await attacker.fetch("SELECT * FROM treadle.run_records")
    closed = await admin.fetch(
        """SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'treadle'::regnamespace
              AND NOT has_function_privilege('treadle_agent', p.oid, 'EXECUTE')"""
    )
    assert len(closed) >= 20
    for (signature,) in closed:
        name, kinds = signature.rstrip(")").split("(", 1)
        nulls = ", ".join(f"NULL::{kind}" for kind in kinds.split(",") if kind)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await attacker.fetch(f"SELECT {name}({nulls})")
    for sql in (
        "SET ROLE treadle_owner",
        "SET ROLE treadle_operator",
        "SET session_replication_role = replica",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "CREATE SCHEMA mine",
        "CREATE TABLE public.mine (n int)",
        "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ):
        with pytest.raises(asyncpg.PostgresError):
            await attacker.execute(sql)


async def test_public_may_execute_nothing_of_ours_and_every_function_pins_its_search_path(
    store: Store,
) -> None:
    admin = await store.connect("admin")
    ours = "FROM pg_proc p WHERE p.pronamespace = 'treadle'::regnamespace"

    assert (
        await admin.fetch(f"SELECT p.proname {ours} AND has_function_privilege('public', p.oid, 'EXECUTE')")
        == []
    )
    pinned = await admin.fetch(f"SELECT p.proname, p.proconfig {ours} AND p.prosecdef")
    assert [row for row in pinned if "search_path=pg_catalog, pg_temp" not in row["proconfig"]] == []
    callable_by_programs = await admin.fetch(
        f"""SELECT p.proname {ours} AND NOT p.prosecdef
              AND (has_function_privilege('treadle_agent', p.oid, 'EXECUTE')
                   OR has_function_privilege('treadle_operator', p.oid, 'EXECUTE')
                   OR has_function_privilege('treadle_gateway', p.oid, 'EXECUTE'))"""
    )
    assert callable_by_programs == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT pg_terminate_backend(1)",
        "SELECT pg_cancel_backend(1)",
        "SELECT pg_try_advisory_lock(1)",
        "SELECT pg_advisory_xact_lock(1)",
        "SELECT lo_create(0)",
        "SELECT lo_from_bytea(0, '\\x00')",
        "SELECT pg_notify('a', 'b')",
        "SELECT pg_logical_emit_message(false, 'a', 'b')",
        "SELECT pg_export_snapshot()",
        "SELECT * FROM pg_stat_activity",
        "SELECT * FROM pg_stat_get_activity(NULL)",
        "SELECT * FROM pg_locks",
        "CREATE TEMPORARY TABLE threads (n int)",
        "DO $$ BEGIN END $$",
        "CREATE TABLE public.t (n int)",
    ],
)
async def test_builtin_functions_that_disturb_others_are_refused(store: Store, sql: str) -> None:
    attacker = await store.connect("agent")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await attacker.execute(sql)


async def test_the_gateway_reads_no_secret(store: Store) -> None:
    gateway = await store.connect("gateway")
    for sql in (
        "SELECT fence_key FROM treadle.threads",
        "SELECT key_hash FROM treadle.run_attempts",
        "SELECT * FROM treadle.agent_pods",
        "SELECT * FROM treadle.assign_run('r', 1, 0, 'p', NULL, NULL, NULL)",
        "SELECT * FROM treadle.heartbeat(NULL, NULL, NULL, NULL)",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await gateway.fetch(sql)
    assert await gateway.fetch("SELECT * FROM treadle.run_records") == []
