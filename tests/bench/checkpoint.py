"""Put and get of LangGraph checkpoints: TreadleSaver against LangGraph's own AsyncPostgresSaver.

    python tests/bench/checkpoint.py [--seconds 2] [--rounds 3] [--messages 10 100 1000] [--threads 1 16]

Both savers work on one private Postgres with fsync on, in the same process, with pools of the same size, on
the same messages; they take turns, so that a slow moment of the disk meets both. One put is what a superstep
costs: a pending write of the new message, then the checkpoint with the grown list. The peer is measured as
its docs show (one saver on a pool, shared by all threads) and with one saver per thread, which avoids its
lock. Ours carries the fence. A conversation that has grown by a fifth is cut back to its size.

Beside the rates stands the CPU time that this process (both savers are its code) spends on one operation: it
bounds what one agent process can do, and a loaded machine distorts it less than it does the rates. No get is
served from anything kept in the process: every one reads and decodes the whole checkpoint.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("crds", "runtime", "tests")]

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage  # noqa: E402
from langchain_core.runnables import RunnableConfig  # noqa: E402
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, empty_checkpoint  # noqa: E402
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver  # noqa: E402
from psycopg import AsyncConnection  # noqa: E402
from psycopg.rows import DictRow, dict_row  # noqa: E402
from psycopg_pool import AsyncConnectionPool  # noqa: E402

from support.claims import Claimer  # noqa: E402
from treadle_runtime.checkpointer import TreadleSaver  # noqa: E402
from treadle_store.devstore import DevStore  # noqa: E402
from treadle_store.migrate import migrate  # noqa: E402
from treadle_store.pool import open_connection, open_pool  # noqa: E402

POOL = 8
OPERATIONS = ("put", "get")
WORDS = [f"{uuid4().hex[: random.Random(n).randint(2, 9)]}" for n in range(4000)]

PeerPool = AsyncConnectionPool[AsyncConnection[DictRow]]


def text(rng: random.Random) -> str:
    """Some 80 words, hard to compress: about the length of a chat message."""
    return " ".join(rng.choices(WORDS, k=80))


@dataclass
class Conversation:
    """One thread as a graph would drive it: state in memory, every step saved."""

    saver: BaseCheckpointSaver[str]
    thread_id: str
    messages: list[BaseMessage]
    rng: random.Random
    head: str | None = None
    step: int = 0
    version: str | None = None

    async def put(self) -> None:
        """One superstep: the new message as a pending write, then the checkpoint."""
        message = AIMessage(text(self.rng), id=str(uuid4()))
        config = self.config()
        if self.head is not None:
            await self.saver.aput_writes(config, [("messages", [message])], str(uuid4()), "~a, model")
        self.messages.append(message)
        self.version = self.saver.get_next_version(self.version, None)
        checkpoint: Checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(self.messages), "title": "a title"}
        checkpoint["channel_versions"] = {"messages": self.version, "title": self.version}
        checkpoint["versions_seen"] = {"model": {"messages": self.version}}
        await self.saver.aput(
            config,
            checkpoint,
            {"source": "loop", "step": self.step, "parents": {}},
            {"messages": self.version, "title": self.version},
        )
        self.head = checkpoint["id"]
        self.step += 1

    async def get(self) -> None:
        """The latest checkpoint with all its values."""
        latest: RunnableConfig = {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": ""}}
        found = await self.saver.aget_tuple(latest)
        assert found is not None
        assert len(found.checkpoint["channel_values"]["messages"]) == len(self.messages)

    def config(self) -> RunnableConfig:
        configurable: dict[str, str] = {"thread_id": self.thread_id, "checkpoint_ns": ""}
        if self.head is not None:
            configurable["checkpoint_id"] = self.head
        return {"configurable": configurable}


Open = Callable[[], Awaitable[tuple[BaseCheckpointSaver[str], str]]]
"""Gives a saver and a fresh thread id."""


class Measured(NamedTuple):
    """One round: operations per second, and this process's CPU milliseconds for each of them."""

    rate: float
    cpu: float


@dataclass
class Contender:
    name: str
    open: Open
    rounds: dict[str, list[Measured]] = field(default_factory=dict)
    """What was measured ("put" or "get") -> one entry per round."""

    def median(self, what: str) -> Measured:
        rates, cpus = zip(*self.rounds[what], strict=True)
        return Measured(statistics.median(rates), statistics.median(cpus))


async def converse(open_thread: Open, messages: int) -> Conversation:
    saver, thread_id = await open_thread()
    rng = random.Random(messages)
    history: list[BaseMessage] = [
        (HumanMessage if n % 2 == 0 else AIMessage)(text(rng), id=str(uuid4())) for n in range(messages)
    ]
    conversation = Conversation(saver, thread_id, history, rng)
    await conversation.put()
    return conversation


async def one_round(
    contender: Contender, what: str, *, messages: int, threads: int, seconds: float
) -> Measured:
    """`threads` conversations that all work without pause."""
    limit = messages + max(messages // 5, 2)
    deadline = 0.0
    done = 0

    async def drive(conversation: Conversation) -> None:
        nonlocal done
        operation = conversation.put if what == "put" else conversation.get
        while time.perf_counter() < deadline:
            await operation()
            done += 1
            if len(conversation.messages) > limit:
                del conversation.messages[messages:]

    conversations = [await converse(contender.open, messages) for _ in range(threads)]
    for conversation in conversations:
        await (conversation.put() if what == "put" else conversation.get())
    started, cpu_before = time.perf_counter(), time.process_time()
    deadline = started + seconds
    await asyncio.gather(*(drive(conversation) for conversation in conversations))
    cpu = time.process_time() - cpu_before
    return Measured(rate=done / (time.perf_counter() - started), cpu=cpu / done * 1000)


async def contenders(store: DevStore, ours: Claimer, pool: PeerPool) -> list[Contender]:
    shared = AsyncPostgresSaver(pool)
    await shared.setup()

    async def open_shared() -> tuple[BaseCheckpointSaver[str], str]:
        return shared, str(uuid4())

    async def open_own() -> tuple[BaseCheckpointSaver[str], str]:
        return AsyncPostgresSaver(pool), str(uuid4())

    async def open_treadle() -> tuple[BaseCheckpointSaver[str], str]:
        capability = await ours.new_run()
        return await TreadleSaver.open(ours.agent, capability), capability.thread_id

    return [
        Contender("AsyncPostgresSaver, shared", open_shared),
        Contender("AsyncPostgresSaver, one per thread", open_own),
        Contender("TreadleSaver", open_treadle),
    ]


async def measure(options: argparse.Namespace) -> None:
    async with DevStore.start(durable=True) as store:
        admin = await open_connection(store.admin_dsn, application="bench")
        await migrate(admin)
        fsync = await admin.fetchval("SHOW fsync")
        await admin.execute("CREATE DATABASE peer")
        peer_dsn = store.admin_dsn.rsplit("/", 1)[0] + "/peer"
        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        peer_pool: PeerPool = AsyncConnectionPool(
            peer_dsn, min_size=POOL, max_size=POOL, kwargs=settings, open=False
        )
        async with peer_pool:
            pool = await open_pool(store.admin_dsn, application="bench", min_size=POOL, max_size=POOL)
            turns = f"{options.rounds} interleaved rounds of {options.seconds} s"
            print(f"Postgres with fsync={fsync}, pools of {POOL}, {turns}")
            columns = "".join(
                f"{what + '/s':>10}{'ratio':>8}{'cpu ms':>9}{'ratio':>8}" for what in OPERATIONS
            )
            print(f"{'medians':34}{columns}")
            for messages in options.messages:
                for threads in options.threads:
                    entered = await contenders(store, Claimer(pool, pool), peer_pool)
                    await compare(entered, options, messages=messages, threads=threads)
            await pool.close()
        await admin.close()


async def compare(
    entered: Sequence[Contender], options: argparse.Namespace, *, messages: int, threads: int
) -> None:
    for _ in range(options.rounds):
        for what in OPERATIONS:
            for contender in random.sample(entered, len(entered)):
                measured = await one_round(
                    contender, what, messages=messages, threads=threads, seconds=options.seconds
                )
                contender.rounds.setdefault(what, []).append(measured)
    print(f"\n{messages} messages, {threads} thread{'s' if threads > 1 else ''}")
    for contender in entered:
        line = f"{contender.name:34}"
        for what in OPERATIONS:
            base, own = entered[0].median(what), contender.median(what)
            line += (
                f"{own.rate:>10.0f}{own.rate / base.rate:>7.2f}x{own.cpu:>9.2f}{base.cpu / own.cpu:>7.2f}x"
            )
        print(line, flush=True)


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 16])
    asyncio.run(measure(parser.parse_args()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
