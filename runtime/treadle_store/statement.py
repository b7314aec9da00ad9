"""One statement, one answer, one place where the driver's exceptions become the store's."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from treadle_api.records import Capability
from treadle_store.errors import StaleToken, translate
from treadle_store.pool import Executor

CAPABILITY_SQL = "$1::uuid, $2::text, $3::bigint, $4::bytea"
"""The first four parameters of every fenced function, filled by `capability_args`."""


def capability_args(cap: Capability) -> tuple[str, str, int, bytes]:
    return cap.thread_id, cap.run_id, cap.token, cap.fence_key


async def fetch_one(db: Executor, sql: str, *args: Any) -> asyncpg.Record | None:
    """The first row of the answer, None where it has none. Raises StoreError."""
    try:
        return await db.fetchrow(sql, *args)
    except Exception as error:
        raise translate(error) from error


async def fetch_all(db: Executor, sql: str, *args: Any) -> Sequence[asyncpg.Record]:
    """Every row of the answer. Raises StoreError."""
    try:
        return await db.fetch(sql, *args)
    except Exception as error:
        raise translate(error) from error


async def fenced(
    db: Executor, cap: Capability, function: str, parameters: str = "", *args: Any
) -> asyncpg.Record:
    """Calls a fenced function: `parameters` from $5 on. Raises StaleToken where it answers no row.

    Reads answer a row in any case, whose `held` says whether the capability was current.
    """
    more = f", {parameters}" if parameters else ""
    sql = f"SELECT * FROM treadle.{function}({CAPABILITY_SQL}{more})"  # noqa: S608 - literals of ours
    row = await fetch_one(db, sql, *capability_args(cap), *args)
    if row is None or row.get("held") is False:
        raise StaleToken(f"{function}: token {cap.token} of run {cap.run_id} is not current")
    return row
