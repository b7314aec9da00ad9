"""Connections: pools and single ones, with every type codec registered without asking the server.

asyncpg learns array types by a query to the catalog at first use, 10-22 ms of each agent's start. The object
ids of built-in types never change, so they are registered here.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import asyncpg

from treadle_store.errors import SchemaMismatch, StoreError, StoreRejected, translate
from treadle_store.migrations import WANTED_VERSION

# At run time asyncpg's classes take no parameters, for the type checker they do.
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Executor: TypeAlias = (
    "asyncpg.Pool[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]"
    " | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
)
"""What every function of this package takes first: both run one statement and give one answer."""

_JSONB_OID: Final = 3802
# array type -> (its object id, that of its elements), as in pg_type of every supported server.
_ARRAYS: Final = {
    "bytea": (1001, 17),
    "int4": (1007, 23),
    "int8": (1016, 20),
    "timestamptz": (1185, 1184),
    "uuid": (2951, 2950),
    "jsonb": (3807, _JSONB_OID),
}


def encode_json(value: Any) -> str:
    """JSON as the store takes it: compact, real characters, no NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _register_codecs(connection: Any) -> None:
    # set_type_codec() would do the same after a round trip for each type; both calls below are what it ends
    # in.
    settings = connection._protocol.get_settings()
    settings.add_python_codec(
        _JSONB_OID, "jsonb", "pg_catalog", [], "scalar", encode_json, json.loads, "text"
    )
    settings.register_data_types(
        [
            {
                "oid": oid,
                "ns": "pg_catalog",
                "name": f"_{name}",
                "kind": b"b",
                "basetype": None,
                "basetype_name": None,
                "elemtype": element,
                "elemtype_name": name,
                "elemdelim": ",",
                "range_subtype": None,
                "range_subtype_name": None,
                "attrtypoids": None,
                "attrnames": None,
                "depth": 0,
            }
            for name, (oid, element) in _ARRAYS.items()
        ]
    )


async def _prepare(connection: Any) -> None:
    _register_codecs(connection)


async def _keep(connection: Any) -> None:
    """Our statements leave no session state, and the default reset calls what agents may not (advisory
    locks)."""


async def _connected(attempt: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await attempt()
    except ValueError as error:
        raise StoreRejected("InvalidDSN", f"not a Postgres URL: {error}") from None
    except Exception as error:
        raise translate(error) from error


async def open_pool(
    dsn: str, *, application: str, min_size: int = 1, max_size: int = 4, command_timeout: float = 15
) -> Pool:
    """A pool of connections that are ready for every function of this package.

    `application` is shown in pg_stat_activity. `command_timeout` in seconds bounds each statement.
    Raises StoreUnavailable when the server cannot be reached, StoreRejected for a DSN or credential it
    refuses.
    """

    async def attempt() -> Pool:
        return await asyncpg.create_pool(
            dsn,
            min_size=min_size,
            max_size=max_size,
            command_timeout=command_timeout,
            timeout=10,
            max_inactive_connection_lifetime=60,
            init=_prepare,
            reset=_keep,
            server_settings={"application_name": application},
        )

    pool: Pool = await _connected(attempt)
    return pool


async def open_connection(dsn: str, *, application: str, command_timeout: float = 15) -> Connection:
    """One connection, with the errors of `open_pool`."""

    async def attempt() -> Connection:
        connection = await asyncpg.connect(
            dsn,
            timeout=10,
            command_timeout=command_timeout,
            server_settings={"application_name": application},
        )
        _register_codecs(connection)
        return connection

    connection: Connection = await _connected(attempt)
    return connection


async def check_schema(db: Executor) -> int:
    """The version of the database's schema. Raises SchemaMismatch when it is older than this program.

    A newer one is accepted: migrations only add, so that programs can be updated one after the other.
    """
    try:
        have: int = await db.fetchval("SELECT treadle.schema_version()")
    except (
        asyncpg.InvalidSchemaNameError,
        asyncpg.UndefinedFunctionError,
        asyncpg.InsufficientPrivilegeError,
    ):
        have = 0
    except StoreError:
        raise
    except Exception as error:
        raise translate(error) from error
    if have < WANTED_VERSION:
        raise SchemaMismatch(have, WANTED_VERSION)
    return have
