"""What PUBLIC may do by default and an agent must not: each step closes an attack that was carried out.

The catalog's rights belong to one database and the steps need its superuser, so they are no numbered
migration: `treadle-migrate up` applies them each time, `treadle-migrate check` says which stand open and how
to close them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from treadle_store.pool import Connection


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    closes: str
    """The attack, for whoever reads `check`."""
    is_open: str
    """A query for one boolean."""
    close: str
    """Statements for the superuser; {database} is filled in. Empty where a server setting must change."""


def _functions_open(pattern: str) -> str:
    return f"""
        SELECT coalesce(bool_or(has_function_privilege('public', p.oid, 'EXECUTE')), false) FROM pg_proc p
         WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname ~ '{pattern}'"""  # noqa: S608


def _functions_close(pattern: str) -> str:
    return f"""
        DO $$ DECLARE f regprocedure; BEGIN
          FOR f IN SELECT p.oid FROM pg_proc p
                    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname ~ '{pattern}' LOOP
            EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
          END LOOP;
        END $$;"""  # noqa: S608


_ADVISORY: Final = "^pg_(try_)?advisory_"
_SIGNALS: Final = "^pg_(terminate|cancel)_backend$"
_ACTIVITY: Final = "^(pg_stat_get_activity|pg_stat_get_backend_activity|pg_lock_status)$"
_ACTIVITY_GRANTS: Final = """
    REVOKE SELECT ON pg_stat_activity, pg_locks, pg_stat_all_tables FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION pg_stat_get_activity(integer), pg_lock_status()
      TO treadle_owner, pg_monitor;
    GRANT SELECT ON pg_stat_activity, pg_locks TO treadle_owner, pg_monitor;
    GRANT SELECT ON pg_stat_all_tables TO pg_monitor;"""
_LARGE_OBJECTS: Final = "^(lo_.*|loread|lowrite)$"
_WAL_AND_QUEUE: Final = "^(pg_logical_emit_message|pg_notify|pg_export_snapshot)$"

STEPS: Final[Sequence[Step]] = (
    Step(
        "temporary-objects",
        "temporary tables that fill the disk or shadow ours; objects of strangers in the database",
        "SELECT has_database_privilege('public', current_database(), 'TEMPORARY')"
        " OR has_database_privilege('public', current_database(), 'CREATE')",
        "REVOKE TEMPORARY, CREATE ON DATABASE {database} FROM PUBLIC;",
    ),
    Step(
        "public-schema",
        "objects of strangers in schema public (open by default before Postgres 15)",
        "SELECT coalesce((SELECT has_schema_privilege('public', n.oid, 'CREATE')"
        " FROM pg_namespace n WHERE n.nspname = 'public'), false)",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC;",
    ),
    Step(
        "signals",
        "ending or cancelling other agents' sessions",
        _functions_open(_SIGNALS),
        _functions_close(_SIGNALS)
        + "GRANT EXECUTE ON FUNCTION pg_terminate_backend(integer, bigint) TO treadle_owner;",
    ),
    Step(
        "advisory-locks",
        "holding the lock of the migrations; filling the lock table",
        _functions_open(_ADVISORY),
        _functions_close(_ADVISORY)
        + "GRANT EXECUTE ON FUNCTION pg_try_advisory_lock(bigint), pg_advisory_unlock(bigint)"
        " TO treadle_owner;",
    ),
    Step(
        "large-objects",
        "storing bytes outside every limit",
        _functions_open(_LARGE_OBJECTS),
        _functions_close(_LARGE_OBJECTS),
    ),
    Step(
        "wal-and-queue",
        "writing WAL and notifications at will; holding back vacuum",
        _functions_open(_WAL_AND_QUEUE),
        _functions_close(_WAL_AND_QUEUE),
    ),
    Step(
        "activity",
        "reading what other agents run and lock",
        _functions_open(_ACTIVITY)
        + " UNION ALL SELECT true WHERE has_table_privilege('public', 'pg_catalog.pg_stat_activity',"
        " 'SELECT') OR has_table_privilege('public', 'pg_catalog.pg_locks', 'SELECT')"
        " ORDER BY 1 DESC LIMIT 1",
        _functions_close(_ACTIVITY) + _ACTIVITY_GRANTS,
    ),
    Step(
        "plpgsql",
        "DO blocks: loops on the server that no statement of ours foresees",
        "SELECT has_language_privilege('public', 'plpgsql', 'USAGE')",
        "REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC; GRANT USAGE ON LANGUAGE plpgsql TO treadle_owner;",
    ),
    Step(
        "prepared-transactions",
        "a lock that PREPARE TRANSACTION keeps without any session to end",
        "SELECT current_setting('max_prepared_transactions')::integer > 0",
        "",
    ),
)


async def open_steps(connection: Connection) -> list[Step]:
    """The steps that are not closed in this database."""
    return [step for step in STEPS if await connection.fetchval(step.is_open)]


async def harden(connection: Connection) -> None:
    """Closes what this connection's role may close; what it may not stays for `open_steps`."""
    database = await connection.fetchval("SELECT quote_ident(current_database())")
    for step in await open_steps(connection):
        if not step.close:
            continue
        try:
            async with connection.transaction():
                await connection.execute(step.close.format(database=database))
        except asyncpg.InsufficientPrivilegeError:
            continue
