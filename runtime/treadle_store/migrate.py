"""`treadle-migrate`: brings a database to the version that this program needs.

    treadle-migrate up              apply what is missing, harden, make the login roles whose password is in
                                    TREADLE_{OPERATOR,GATEWAY,AGENT}_PASSWORD
    treadle-migrate check           say whether something is missing or stands open; exit 1 if so
    treadle-migrate fence-all       after a failover: every thread's token rises, then this server is the
                                    current one (--after-restore: by a large step, because the backup may be
                                    older than many tokens)
    treadle-migrate role NAMESPACE  a login role for one namespace's agents, with TREADLE_AGENT_PASSWORD
    treadle-migrate dump-schema     print schema.sql as the database has it

The server is named by --dsn or TREADLE_MIGRATE_DSN and is waited for (--wait seconds).
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

import asyncpg

from treadle_store.errors import StoreError, StoreRejected, StoreUnavailable, translate
from treadle_store.hardening import harden, open_steps
from treadle_store.migrations import MIGRATIONS, WANTED_VERSION, Migration
from treadle_store.pool import Connection, open_connection
from treadle_store.roles import LOGINS, agent_role, ensure_login
from treadle_store.schema_dump import dump_schema

_LOCK: Final = 0x7472656164  # "tread"
_LOCK_SECONDS: Final = 60
_RETRY_SECONDS: Final = 0.5
_STEP_AFTER_RESTORE: Final = 2**32


async def connect(dsn: str, *, wait: float) -> Connection:
    """A connection for migrations; waits `wait` seconds for the server, then raises StoreUnavailable."""
    deadline = time.monotonic() + wait
    while True:
        try:
            return await open_connection(dsn, application="treadle-migrate", command_timeout=600)
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_RETRY_SECONDS)


async def applied(connection: Connection) -> dict[int, str]:
    """Version -> digest of every migration that this database has."""
    if await connection.fetchval("SELECT to_regclass('treadle.migrations')") is None:
        return {}
    rows = await connection.fetch("SELECT version, digest FROM treadle.migrations")
    return {row["version"]: row["digest"] for row in rows}


def edited(have: Mapping[int, str]) -> list[Migration]:
    """Migrations whose file is not what this database applied: the two can no longer be compared."""
    return [m for m in MIGRATIONS if m.version in have and have[m.version] != m.digest]


async def migrate(connection: Connection) -> list[Migration]:
    """Applies what is missing, each file in its own transaction, and hardens. Returns what was applied."""
    await _lock(connection)
    try:
        have = await applied(connection)
        if changed := edited(have):
            names = ", ".join(f"{m.version:04}_{m.name}" for m in changed)
            raise StoreRejected(
                "MigrationEdited", f"{names} differ from what this database applied: use that release"
            )
        missing = [m for m in MIGRATIONS if m.version not in have]
        for migration in missing:
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO treadle.migrations (version, name, digest) VALUES ($1, $2, $3)",
                    migration.version,
                    migration.name,
                    migration.digest,
                )
        await harden(connection)
        return missing
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)


async def _lock(connection: Connection) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
        if time.monotonic() > deadline:
            raise StoreUnavailable("another migration has been running for a minute", maybe_committed=False)
        await asyncio.sleep(_RETRY_SECONDS)


async def ensure_logins(connection: Connection, passwords: Mapping[str, str]) -> list[str]:
    """Makes the login role of each program (`roles.LOGINS`) that has a password here. Returns their names."""
    made = []
    for program, password in passwords.items():
        await ensure_login(connection, LOGINS[program], f"treadle_{program}", password)
        made.append(LOGINS[program])
    return made


async def fence_all(connection: Connection, *, after_restore: bool = False) -> tuple[int, int]:
    """Makes this server's history the current one. Returns (threads fenced, the new incarnation)."""
    step = _STEP_AFTER_RESTORE if after_restore else 1
    row = await connection.fetchrow("SELECT * FROM treadle.fence_all($1)", step)
    if row is None:
        raise StoreError("fence_all answered no row: is the store's incarnation missing?")
    return row["threads"], row["incarnation"]


async def problems(connection: Connection) -> list[str]:
    """What `check` reports, one sentence each; empty when nothing is missing or open."""
    have = await applied(connection)
    newest = max(have, default=0)
    found = []
    if newest < WANTED_VERSION:
        found.append(f"schema: at version {newest}, {WANTED_VERSION} is needed: run treadle-migrate up")
    found += [f"schema: {m.version:04}_{m.name} differs from what was applied" for m in edited(have)]
    for step in await open_steps(connection):
        how = step.close.strip() or "set max_prepared_transactions = 0 and restart the server"
        found.append(f"open: {step.name} ({step.closes}). As superuser: {' '.join(how.split())}")
    return found


async def _up(connection: Connection) -> int:
    done = await migrate(connection)
    print(
        "\n".join(f"applied {m.version:04}_{m.name}" for m in done)
        or f"schema is at version {WANTED_VERSION}"
    )
    passwords = {
        p: os.environ[name] for p in LOGINS if (name := f"TREADLE_{p.upper()}_PASSWORD") in os.environ
    }
    for login in await ensure_logins(connection, passwords):
        print(f"login role {login} is ready")
    for problem in await problems(connection):
        print(problem)
    return 0


async def _check(connection: Connection) -> int:
    found = await problems(connection)
    print("\n".join(found) or f"schema is at version {WANTED_VERSION}, nothing stands open")
    return 1 if found else 0


async def _role(connection: Connection, namespace: str, limit: int) -> int:
    password = os.environ.get("TREADLE_AGENT_PASSWORD")
    if not password:
        raise StoreRejected("PasswordMissing", "give the role's password in TREADLE_AGENT_PASSWORD")
    login = agent_role(namespace)
    await ensure_login(connection, login, "treadle_agent", password, connection_limit=limit)
    print(login)
    return 0


async def _fence(connection: Connection, after_restore: bool) -> int:
    threads, incarnation = await fence_all(connection, after_restore=after_restore)
    print(f"{threads} threads fenced; this server is now incarnation {incarnation}")
    return 0


async def _run(options: argparse.Namespace) -> int:
    connection = await connect(options.dsn, wait=options.wait)
    try:
        match options.command:
            case "up":
                return await _up(connection)
            case "check":
                return await _check(connection)
            case "fence-all":
                return await _fence(connection, options.after_restore)
            case "role":
                return await _role(connection, options.namespace, options.connection_limit)
            case _:
                print(await dump_schema(connection), end="")
                return 0
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise translate(error) from error
    finally:
        connection.terminate()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="treadle-migrate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dsn", default=os.environ.get("TREADLE_MIGRATE_DSN"))
    parser.add_argument("--wait", type=float, default=60, metavar="SECONDS")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up")
    commands.add_parser("check")
    commands.add_parser("fence-all").add_argument("--after-restore", action="store_true")
    role = commands.add_parser("role")
    role.add_argument("namespace")
    role.add_argument("--connection-limit", type=int, default=-1)
    commands.add_parser("dump-schema")
    options = parser.parse_args(arguments)
    if not options.dsn:
        parser.error("name the server with --dsn or TREADLE_MIGRATE_DSN")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    try:
        return asyncio.run(_run(options))
    except StoreError as error:
        print(f"treadle-migrate: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
