"""Roles, passwords and connections as an installation sees them."""

import asyncio
import logging
from typing import Any

import asyncpg
import pytest

from support.store_world import World
from support.stores import Server, Store
from treadle_store import agent, pool
from treadle_store.errors import StoreRejected, StoreUnavailable
from treadle_store.migrate import main
from treadle_store.pool import open_connection, open_pool
from treadle_store.roles import agent_role, ensure_login


async def test_the_command_brings_up_a_database_and_a_namespace_role(
    store_server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database, namespace = "treadle_command", "team-x"
    server = await open_connection(store_server.admin_dsn, application="test")
    await server.execute(f"CREATE DATABASE {database}")
    monkeypatch.setenv("TREADLE_MIGRATE_DSN", store_server.dsn(database))
    monkeypatch.setenv("TREADLE_AGENT_PASSWORD", store_server.passwords["agent"])
    login = agent_role(namespace)
    try:
        assert await asyncio.to_thread(main, ["check"]) == 1
        assert "run treadle-migrate up" in capsys.readouterr().out
        assert await asyncio.to_thread(main, ["up"]) == 0
        assert "login role treadle_agent_user is ready" in capsys.readouterr().out
        assert await asyncio.to_thread(main, ["check"]) == 0
        assert await asyncio.to_thread(main, ["role", namespace, "--connection-limit", "3"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == login
        assert await asyncio.to_thread(main, ["fence-all"]) == 0
        assert capsys.readouterr().out == "0 threads fenced; this server is now incarnation 2\n"

        dsn = store_server.dsn(database, "agent").replace("treadle_agent_user", login)
        member = await open_connection(dsn, application="test")
        assert await agent.take_assignment(member, "no such key", "uid") is None
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await member.execute("SELECT * FROM treadle.threads")
        await member.close()
    finally:
        await server.execute(f"DROP DATABASE {database} WITH (FORCE)")
        await server.execute(f'DROP ROLE IF EXISTS "{login}"')
        await server.close()


async def test_a_login_role_that_an_agent_spoiled_is_brought_back(store: Store, store_server: Server) -> None:
    admin, login = await store.connect("admin"), "treadle_agent_spoiled"
    dsn = store.agent.replace("treadle_agent_user", login)
    await ensure_login(admin, login, "treadle_agent", store_server.passwords["agent"])
    try:
        spoiler = await open_connection(dsn, application="test")
        await spoiler.execute(
            f"ALTER ROLE {login} SET default_transaction_read_only = on; ALTER ROLE {login} PASSWORD 'mine'"
        )
        await spoiler.close()
        with pytest.raises(StoreRejected):
            await open_connection(dsn, application="test")

        await ensure_login(admin, login, "treadle_agent", store_server.passwords["agent"])

        again = await open_connection(dsn, application="test")
        assert await again.fetchval("SHOW default_transaction_read_only") == "off"
        assert await again.fetchval("SHOW statement_timeout") == "15s"
        assert await again.fetchval("SHOW idle_in_transaction_session_timeout") == "5s"
        await again.close()
    finally:
        await admin.execute(f'DROP ROLE "{login}"')


async def test_no_password_reaches_the_server_s_statement_log(store: Store) -> None:
    admin = await store.connect("admin")
    seen: list[str] = []
    with admin.query_logger(lambda record: seen.append(record.query)):
        await ensure_login(admin, "treadle_agent_logged", "treadle_agent", "the secret password")
    await admin.execute('DROP ROLE "treadle_agent_logged"')

    assert any("SCRAM-SHA-256$" in query for query in seen)
    assert not [query for query in seen if "the secret password" in query]


async def test_no_type_is_asked_of_the_server(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("asyncpg looks types up on the server: register them in pool.py")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", refuse)
    monkeypatch.setattr(asyncpg.Connection, "_introspect_type", refuse)
    connection = await store.connect("admin")
    values: dict[str, Any] = {
        "bytea[]": [b"a", b""], "int4[]": [1], "int8[]": [2**40], "jsonb[]": [{"a": [1]}],
        "jsonb": {"é": None},        "text[]": ["a", None], "uuid[]": [],
    }  # fmt: skip
    for kind, value in values.items():
        assert await connection.fetchval(f"SELECT $1::{kind}", value) == value


async def test_a_pool_gives_connections_back_without_asking_what_agents_may_not(store: Store) -> None:
    agents = await store.pool("agent", max_size=1)
    for _ in range(3):
        async with agents.acquire() as connection:
            await connection.fetchval("SELECT 1")
    assert agents.get_size() == 1


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda dsn: "nonsense", StoreRejected, "InvalidDSN|InvalidArgument"),
        (lambda dsn: dsn.rsplit("/", 1)[0] + "/missing", StoreRejected, "does not exist"),
        (lambda dsn: dsn.replace("treadle_agent_user:", "treadle_agent_user:x"), StoreRejected, "password"),
        (lambda dsn: "postgresql://u:p@127.0.0.1:1/x", StoreUnavailable, "refused|Connect call failed"),
    ],
)
async def test_a_connection_that_cannot_be_had_says_why(
    store: Store, change: Any, error: Any, words: str
) -> None:
    for opened in (open_connection, open_pool):
        with pytest.raises(error, match=words):
            await opened(change(store.agent), application="test")


async def test_no_secret_stands_in_what_is_printed(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = World(await store.pool("operator"), await store.pool("agent"))
    cap = await world.start()
    assert repr(cap.fence_key) not in repr(cap)
    assert cap.fence_key.hex() not in caplog.text
    assert pool.encode_json({"a": "é"}) == '{"a":"é"}'
