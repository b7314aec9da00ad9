"""Appending to the event log: fenced, chained and gap-free, against a plain INSERT of the same rows.

    python -m bench events [--seconds 2] [--rounds 3]

One private Postgres with fsync on, one pool, the same events. The peer's table has the same columns, indexes
and keys; it is told the seq and asks for nothing. Ours locks the thread's row, compares token and fence key,
checks the events, numbers and chains them. The two take turns.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from bench.report import heading, ratio, table
from support.claims import Claimer
from treadle_api.records import Event
from treadle_store.devstore import DevStore
from treadle_store.events import append_events, event_rows
from treadle_store.migrate import migrate
from treadle_store.pool import Pool, open_connection, open_pool

POOL = 8
_TEXT = "What a model says in a sentence or two, with a number such as 1180 and a name such as north. " * 3
_PLAIN = """
INSERT INTO peer.events (thread_id, seq, run_id, event_id, type, task_id, payload, chain, token)
SELECT $1::uuid, $2::bigint + x.n, $3, (x.v ->> 'id')::uuid, x.v ->> 'type', x.v ->> 'task', x.v -> 'payload',
       '\\x00112233445566778899aabbccddeeff'::bytea, 1
  FROM jsonb_array_elements($4::jsonb) WITH ORDINALITY x (v, n)
"""

Append = Callable[[list[Event]], Awaitable[None]]
Open = Callable[[], Awaitable[Append]]
"""Gives a fresh thread, as the function that appends to it."""


@dataclass
class Contender:
    name: str
    open: Open
    rates: list[float] = field(default_factory=list)
    """Events per second, one per round."""


def _batch(size: int) -> list[Event]:
    return [Event(uuid4(), "message", {"n": n, "text": _TEXT}) for n in range(size)]


async def _rate(open_thread: Open, *, batch: int, threads: int, seconds: float) -> float:
    appends = [await open_thread() for _ in range(threads)]
    started = time.perf_counter()
    done = 0

    async def drive(append: Append) -> None:
        nonlocal done
        while time.perf_counter() - started < seconds:
            await append(_batch(batch))
            done += batch

    await asyncio.gather(*(drive(append) for append in appends))
    return done / (time.perf_counter() - started)


def _ours(claimer: Claimer) -> Open:
    async def open_thread() -> Append:
        capability = await claimer.new_run()

        async def append(events: list[Event]) -> None:
            await append_events(claimer.agent, capability, events)

        return append

    return open_thread


def _peer(pool: Pool) -> Open:
    async def open_thread() -> Append:
        thread: UUID = uuid4()
        head = 0

        async def append(events: list[Event]) -> None:
            nonlocal head
            await pool.execute(_PLAIN, thread, head, "run", event_rows(events))
            head += len(events)

        return append

    return open_thread


async def measure(options: argparse.Namespace) -> None:
    async with DevStore.start(durable=True) as store:
        admin = await open_connection(store.admin_dsn, application="bench")
        await migrate(admin)
        await admin.execute(
            "CREATE SCHEMA peer; CREATE TABLE peer.events (LIKE treadle.run_events INCLUDING ALL)"
        )
        await admin.close()
        pool = await open_pool(store.admin_dsn, application="bench", min_size=POOL, max_size=POOL)
        heading(
            "event append: treadle.append_events against a plain INSERT of the same rows",
            f"events per second, median of {options.rounds} interleaved rounds of {options.seconds} s; "
            f"events of {len(_TEXT)} characters, fsync on, pool of {POOL}",
        )
        rows = [
            await _compare(pool, options, batch=batch, threads=threads)
            for batch, threads in ((1, 1), (20, 1), (1, 16), (20, 16))
        ]
        table(["events a statement, threads", "plain INSERT", "append_events", "ratio"], rows)
        await pool.close()


async def _compare(pool: Pool, options: argparse.Namespace, *, batch: int, threads: int) -> list[str | float]:
    plain, fenced = Contender("plain", _peer(pool)), Contender("fenced", _ours(Claimer(pool, pool)))
    for _ in range(options.rounds):
        for contender in random.sample([plain, fenced], 2):
            measured = await _rate(contender.open, batch=batch, threads=threads, seconds=options.seconds)
            contender.rates.append(measured)
    peer, ours = statistics.median(plain.rates), statistics.median(fenced.rates)
    return [f"{batch} x {threads} thread{'s' if threads > 1 else ''}", peer, ours, ratio(ours, peer)]
