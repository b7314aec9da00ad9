"""Every function that changes something, as a call to repeat and a query that proves one effect."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from support.store_world import HOLDER, World, events
from treadle_api.records import AdmitFile, Capability, LossClass, Manifest, ManifestEntry, RunStatus, ThreadID
from treadle_store import agent, checkpoints, runs, steps, threads, workspace
from treadle_store.events import append_events
from treadle_store.pool import Connection, Executor

Call = Callable[[Executor, bool], Awaitable[Any]]
"""A call on this connection; True when it is the retry."""


@dataclass(frozen=True, slots=True)
class Case:
    """`make` prepares the world and returns the call, and the query whose answer proves one effect."""

    program: str
    make: Callable[[World, Connection], Awaitable[tuple[Call, str]]]
    says: Callable[[Any], bool] = lambda answer: True
    """Whether the retry's answer tells what happened."""


def _of_run(cap: Capability, query: str) -> str:
    return query.format(run=cap.run_id, thread=cap.thread_id)


async def _append(world: World, admin: Connection) -> tuple[Call, str]:
    cap, batch = await world.start(), events(5)
    return (
        lambda db, retry: append_events(db, cap, batch, retry=retry),
        _of_run(cap, "SELECT count(*) = 5 FROM treadle.run_events WHERE run_id = '{run}'"),
    )


async def _append_more(world: World, admin: Connection) -> tuple[Call, str]:
    cap, batch, more = await world.start(), events(5), events(3)
    return (
        lambda db, retry: append_events(db, cap, batch + more if retry else batch, retry=retry),
        _of_run(cap, "SELECT count(*) = 8 AND max(seq) = 8 FROM treadle.run_events WHERE run_id = '{run}'"),
    )


async def _step(world: World, admin: Connection) -> tuple[Call, str]:
    cap, batch = await world.start(), events(2)
    blob = checkpoints.ChannelBlob("messages", "1", "msgpack", b"x")
    head = checkpoints.CheckpointRow(
        "", "cp", None, {"channel_versions": {"messages": "1"}}, {"step": 0}, [blob]
    )
    write = checkpoints.WriteRow("", "cp", "task", "", 0, "messages", "msgpack", b"y")
    return (
        lambda db, retry: steps.commit_step(
            db, cap, events=batch, writes=[write], checkpoints=[head], retry=retry
        ),
        _of_run(
            cap,
            """SELECT (SELECT count(*) FROM treadle.run_events WHERE run_id = '{run}') = 2
                  AND (SELECT count(*) FROM treadle.checkpoints WHERE thread_id = '{thread}') = 1
                  AND (SELECT count(*) FROM treadle.checkpoint_writes WHERE thread_id = '{thread}') = 1""",
        ),
    )


async def _step_with_manifest(world: World, admin: Connection) -> tuple[Call, str]:
    cap, batch = await world.start(), events(2)
    manifest = Manifest(uuid4(), ())
    return (
        lambda db, retry: steps.commit_step(db, cap, events=batch, manifest=manifest, retry=retry),
        _of_run(
            cap,
            """SELECT (SELECT count(*) FROM treadle.run_events WHERE run_id = '{run}') = 2
                  AND (SELECT count(*) FROM treadle.workspace_manifests WHERE thread_id = '{thread}') = 1""",
        ),
    )


async def _checkpoint(world: World, admin: Connection) -> tuple[Call, str]:
    cap = await world.start()
    head = checkpoints.CheckpointRow("", "cp", None, {}, {"step": 0})
    return (
        lambda db, retry: checkpoints.put_checkpoint(db, cap, head),
        _of_run(cap, "SELECT count(*) = 1 FROM treadle.checkpoints WHERE thread_id = '{thread}'"),
    )


async def _writes(world: World, admin: Connection) -> tuple[Call, str]:
    cap = await world.start()
    write = checkpoints.WriteRow("", "cp", "task", "", 0, "messages", "msgpack", b"y")
    return (
        lambda db, retry: checkpoints.put_writes(db, cap, [write]),
        _of_run(cap, "SELECT count(*) = 1 FROM treadle.checkpoint_writes WHERE thread_id = '{thread}'"),
    )


async def _blob(world: World, admin: Connection) -> tuple[Call, str]:
    cap = await world.start()
    return (
        lambda db, retry: workspace.put_blob(db, cap, b"data"),
        _of_run(cap, "SELECT count(*) = 1 FROM treadle.thread_blobs WHERE thread_id = '{thread}'"),
    )


async def _manifest(world: World, admin: Connection) -> tuple[Call, str]:
    cap, manifest = await world.start(), uuid4()
    sha256 = await workspace.put_blob(world.agent, cap, b"data")
    entry = ManifestEntry("a", sha256, 4, 0o644, "text/plain")
    return (
        lambda db, retry: workspace.put_manifest(db, cap, [entry], manifest),
        f"""SELECT count(*) = 1 AND bool_and(t.head_manifest = m.manifest_id)
              FROM treadle.workspace_manifests m JOIN treadle.threads t USING (thread_id)
             WHERE thread_id = '{cap.thread_id}' AND m.manifest_id = '{manifest}'""",
    )


async def _heartbeat(world: World, admin: Connection) -> tuple[Call, str]:
    cap = await world.start()
    return lambda db, retry: agent.heartbeat(db, cap), "SELECT true"


async def _claim(world: World, admin: Connection) -> tuple[Call, str]:
    cap = await world.take_over(await world.start())
    return (
        lambda db, retry: agent.claim_run(db, cap, *HOLDER),
        _of_run(cap, "SELECT status = 'running' FROM treadle.runs WHERE run_id = '{run}'"),
    )


async def _finalizing(world: World, admin: Connection) -> tuple[Call, str]:
    cap = await world.start()
    return (
        lambda db, retry: agent.begin_finalizing(db, cap),
        _of_run(cap, "SELECT status = 'finalizing' FROM treadle.runs WHERE run_id = '{run}'"),
    )


async def _settle(world: World, admin: Connection) -> tuple[Call, str]:
    cap, end, delivery = await world.start(), uuid4(), uuid4()
    return (
        lambda db, retry: agent.settle_run(
            db,
            cap,
            outcome=RunStatus.SUCCESS,
            end={},
            receipt={"reason": "Delivered"},
            end_event_id=end,
            delivery_event_id=delivery,
        ),
        _of_run(
            cap,
            """SELECT (SELECT count(*) FROM treadle.receipts WHERE run_id = '{run}') = 1
                  AND (SELECT count(*) FROM treadle.run_events WHERE run_id = '{run}') = 2""",
        ),
    )


async def _settle_and_next(world: World, admin: Connection) -> tuple[Call, str]:
    """The retry comes when the thread already belongs to the next run."""
    call, query = await _settle(world, admin)

    async def later(db: Executor, retry: bool) -> Any:
        if retry:
            thread = await admin.fetchval("SELECT thread_id FROM treadle.threads")
            await world.start(ThreadID(str(thread)))
        return await call(db, retry)

    return later, query


async def _delete(world: World, admin: Connection) -> tuple[Call, str]:
    cap = await world.start()
    await checkpoints.put_checkpoint(world.agent, cap, checkpoints.CheckpointRow("", "cp", None, {}, {}))
    return (
        lambda db, retry: checkpoints.delete_thread_checkpoints(db, cap),
        _of_run(cap, "SELECT count(*) = 0 FROM treadle.checkpoints WHERE thread_id = '{thread}'"),
    )


async def _admit(world: World, admin: Connection) -> tuple[Call, str]:
    thread = (await world.thread()).thread_id
    admission = world.admission(thread, files=(AdmitFile("a.txt", b"text"),))
    return (
        lambda db, retry: runs.admit_run(db, admission),
        f"SELECT count(*) = 1 FROM treadle.runs WHERE thread_id = '{thread}'",
    )


async def _assign(world: World, admin: Connection) -> tuple[Call, str]:
    cap = await world.start()
    return (
        lambda db, retry: runs.assign_run(
            db,
            run_id=cap.run_id,
            attempt=2,
            expected_token=cap.token,
            pod="the-pod",
            loss=LossClass.RETRY,
            reason="x",
        ),
        _of_run(
            cap,
            """SELECT fencing_token = 2 AND (SELECT count(*) FROM treadle.run_attempts) = 2
                 FROM treadle.threads WHERE thread_id = '{thread}'""",
        ),
    )


async def _cancel(world: World, admin: Connection) -> tuple[Call, str]:
    cap = await world.start()
    return (
        lambda db, retry: runs.request_cancel(db, cap.run_id, "keep", "Cancelled"),
        _of_run(cap, "SELECT cancel_action = 'keep' FROM treadle.runs WHERE run_id = '{run}'"),
    )


async def _orphan(world: World, admin: Connection) -> tuple[Call, str]:
    cap = await world.start()
    return (
        lambda db, retry: runs.settle_orphan(
            db,
            run_id=cap.run_id,
            expected_token=cap.token,
            outcome=RunStatus.ERROR,
            reason="HolderLost",
            message="lost",
        ),
        _of_run(
            cap,
            """SELECT fencing_token = 2 AND (SELECT count(*) FROM treadle.receipts) = 1
                 FROM treadle.threads WHERE thread_id = '{thread}'""",
        ),
    )


async def _register(world: World, admin: Connection) -> tuple[Call, str]:
    return (
        lambda db, retry: threads.register_thread(db, "team", "key", "t", "uid", "lead"),
        "SELECT count(*) = 1 AND bool_and(fencing_token = 0 AND thread_gen = 1) FROM treadle.threads",
    )


async def _revive(world: World, admin: Connection) -> tuple[Call, str]:
    await threads.register_thread(world.operator, "team", "key", "t", "uid", "lead")
    await threads.retire_thread(world.operator, "team", "key")
    return (
        lambda db, retry: threads.register_thread(db, "team", "key", "t", "uid-2", "lead"),
        "SELECT count(*) = 1 AND bool_and(fencing_token = 2 AND thread_gen = 2) FROM treadle.threads",
    )


async def _retire(world: World, admin: Connection) -> tuple[Call, str]:
    await threads.register_thread(world.operator, "team", "key", "t", "uid", "lead")
    return (
        lambda db, retry: threads.retire_thread(db, "team", "key"),
        "SELECT bool_and(fencing_token = 1 AND deleted_at IS NOT NULL) FROM treadle.threads",
    )


CASES = {
    "append_events": Case("agent", _append, lambda a: a.new == 0 and a.first > a.last),
    "append_events with more behind": Case(
        "agent", _append_more, lambda a: (a.new, a.first, a.last) == (3, 6, 8)
    ),
    "commit_step": Case("agent", _step, lambda a: a.new == 0),
    "commit_step_with_manifest": Case("agent", _step_with_manifest, lambda a: a.new == 0),
    "put_checkpoint": Case("agent", _checkpoint),
    "put_writes": Case("agent", _writes),
    "put_blob": Case("agent", _blob, lambda a: len(a) == 64),
    "put_manifest": Case("agent", _manifest),
    "heartbeat": Case("agent", _heartbeat),
    "claim_run": Case("agent", _claim, lambda a: a.input == {"text": "hello"}),
    "begin_finalizing": Case("agent", _finalizing),
    "settle_run": Case("agent", _settle, lambda a: (a.result, a.outcome) == ("already", RunStatus.SUCCESS)),
    "settle_run behind the next run": Case("agent", _settle_and_next, lambda a: a.result == "already"),
    "delete_thread_checkpoints": Case("agent", _delete),
    "admit_run": Case("operator", _admit, lambda a: (a.result, a.status) == ("exists", RunStatus.PENDING)),
    "assign_run": Case("operator", _assign, lambda a: a is not None and a.token == 2),
    "request_cancel": Case("operator", _cancel, lambda a: a == (RunStatus.RUNNING, "keep")),
    "settle_orphan": Case(
        "operator", _orphan, lambda a: (a.result, a.outcome) == ("already", RunStatus.ERROR)
    ),
    "register_thread": Case("operator", _register),
    "register_thread of a retired one": Case("operator", _revive, lambda a: a.log == "2i1"),
    "retire_thread": Case("operator", _retire, lambda a: a is False),
}
