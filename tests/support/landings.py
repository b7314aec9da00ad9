"""Did a write of an old owner commit after the takeover? Asked of Postgres' own commit order.

Each fenced call notes in its own transaction that it was accepted, each takeover that it happened. Afterwards
the commit timestamps say for every accepted call whether the next token had been given before.
"""

from typing import Any, cast

from treadle_api.records import Capability, LossClass
from treadle_store.pool import Connection, Executor

_TABLES = """
CREATE TABLE public.landed (function text, run_id text, token bigint);
CREATE TABLE public.takeovers (run_id text, token bigint);
GRANT USAGE ON SCHEMA public TO treadle_agent, treadle_operator;
GRANT INSERT ON public.landed TO treadle_agent;
GRANT INSERT ON public.takeovers TO treadle_operator;
"""
_LATE = """
SELECT count(*) FILTER (WHERE pg_xact_commit_timestamp(l.xmin) > pg_xact_commit_timestamp(t.xmin)) AS late,
       count(*) AS accepted, count(DISTINCT (l.run_id, l.token)) AS tokens
  FROM public.landed l JOIN public.takeovers t ON t.run_id = l.run_id AND t.token = l.token + 1
"""
# Rows that name their token, for what left one: the same question without our note.
_LATE_ROWS = """
SELECT count(*) FROM treadle.{table} x
  JOIN treadle.run_attempts a ON a.token = x.token
  JOIN treadle.runs r ON r.run_id = a.run_id AND r.thread_id = x.thread_id
  JOIN public.takeovers t ON t.run_id = a.run_id AND t.token = a.token + 1
 WHERE pg_xact_commit_timestamp(x.xmin) > pg_xact_commit_timestamp(t.xmin)
"""
_NAMED = ("run_events", "checkpoints", "checkpoint_blobs", "checkpoint_writes", "workspace_manifests")


class Landing:
    """A connection whose fenced calls note their acceptance, in the statement that makes them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def fetchrow(self, sql: str, *args: Any) -> Any:
        function = sql.split("treadle.", 1)[1].split("(", 1)[0]
        noted = f"""
            WITH answer AS ({sql}),
                 note AS (INSERT INTO public.landed SELECT '{function}', $2, $3 FROM answer)
            SELECT * FROM answer"""
        return await self._connection.fetchrow(noted, *args)

    def as_executor(self) -> Executor:
        return cast(Executor, self)


async def prepare(admin: Connection) -> None:
    """Makes the tables of notes in a test's database."""
    await admin.execute(_TABLES)


async def take_over(operator: Connection, lost: Capability, attempt: int) -> Capability:
    """Assigns `attempt` over the head of `lost` and notes it, in one statement."""
    row = await operator.fetchrow(
        """
        WITH answer AS (SELECT * FROM treadle.assign_run($1, $2, $3, $4, $5, 'HolderLost', 'node')),
             note AS (INSERT INTO public.takeovers SELECT $1, token FROM answer)
        SELECT * FROM answer
        """,
        lost.run_id,
        attempt,
        lost.token,
        f"pod-{lost.run_id}-{attempt}",
        LossClass.DISRUPTION.value,
    )
    assert row is not None, f"attempt {attempt} of {lost.run_id} was not assigned"
    return Capability(lost.thread_id, lost.run_id, row["token"], row["fence_key"])


async def late(admin: Connection) -> dict[str, int]:
    """`accepted` calls on tokens that were taken over, how many `tokens`, and how many calls came `late`."""
    row = await admin.fetchrow(_LATE)
    assert row is not None
    rows = {table: await admin.fetchval(_LATE_ROWS.format(table=table)) for table in _NAMED}
    return {**dict(row), "late_rows": sum(rows.values())}
