"""What outlives a run: the thread, its log, its workspace."""

from dataclasses import replace
from uuid import uuid4

import pytest

from support.store_world import HOLDER, World, events, settle
from support.stores import Store
from treadle_api.records import (
    AdmitFile,
    Capability,
    ManifestEntry,
    RunRecord,
    RunStatus,
    RunUID,
)
from treadle_store import agent, runs, threads, workspace
from treadle_store.errors import StaleToken, StoreRejected
from treadle_store.events import append_events, list_events


@pytest.fixture
async def world(store: Store) -> World:
    return World(await store.pool("operator"), await store.pool("agent"))


async def _record(world: World, run_id: RunUID) -> RunRecord:
    return (await runs.read_runs(world.operator, [run_id]))[run_id]


async def test_files_of_the_spec_and_the_workspace_before_the_run_come_with_the_claim(world: World) -> None:
    first = await world.start()
    old = await workspace.put_blob(world.agent, first, b"old")
    entry = ManifestEntry("old.txt", old, 3, 0o600, "text/plain")
    await workspace.put_manifest(world.agent, first, [entry], uuid4())
    await settle(world.agent, first)
    admission = world.admission(first.thread_id, files=(AdmitFile("notes/a.md", b"# a", "text/markdown"),))
    await runs.admit_run(world.operator, admission)
    assigned = await world.assign(admission.run_id, 1, first.token)
    assert assigned is not None
    cap = Capability(first.thread_id, admission.run_id, assigned.token, assigned.fence_key)

    claim = await agent.claim_run(world.agent, cap, *HOLDER)

    (file,) = claim.files
    assert (file.path, file.size, file.media_type) == ("notes/a.md", 3, "text/markdown")
    assert await workspace.get_blob(world.agent, cap, file.sha256) == b"# a"
    assert (claim.manifest, claim.manifest_run, claim.baseline) == ((entry,), first.run_id, (entry,))

    new = await workspace.put_blob(world.agent, cap, b"new")
    changed = ManifestEntry("new.txt", new, 3, 0o644, "text/plain")
    await workspace.put_manifest(world.agent, cap, [changed], uuid4())
    second = await world.take_over(cap)
    again = await agent.claim_run(world.agent, second, "pod-2", "nonce")
    assert (again.manifest, again.manifest_run, again.baseline) == ((changed,), cap.run_id, (entry,))


async def test_a_repeated_manifest_never_replaces_a_later_one(world: World) -> None:
    cap = await world.start()
    first, second = uuid4(), uuid4()
    sha256 = await workspace.put_blob(world.agent, cap, b"x")
    entry = ManifestEntry("x", sha256, 1, 0o644, "text/plain")
    await workspace.put_manifest(world.agent, cap, [], first)
    await workspace.put_manifest(world.agent, cap, [entry], second)
    await workspace.put_manifest(world.agent, cap, [], first)

    assert (await agent.claim_run(world.agent, cap, *HOLDER)).manifest == (entry,)


async def test_a_thread_comes_back_with_a_higher_token_and_an_empty_log(world: World, store: Store) -> None:
    cap = await world.start()
    await append_events(world.agent, cap, events(3))
    blob = await workspace.put_blob(world.agent, cap, b"only mine")
    thread = await threads.read_thread(world.operator, cap.thread_id)
    assert thread is not None
    assert not await threads.retire_thread(world.operator, "team", thread.thread_key, uid="another object")
    assert await threads.retire_thread(world.operator, "team", thread.thread_key, uid=thread.uid)
    with pytest.raises(StaleToken):
        await append_events(world.agent, cap, events(1))

    back = await threads.register_thread(world.operator, "team", thread.thread_key, "t", "new-uid", "lead")

    assert (back.thread_id, back.log, back.head_seq) == (cap.thread_id, "2i1", 0)
    assert back.fencing_token > cap.token
    assert (await _record(world, cap.run_id)).status is RunStatus.CANCELLED
    admin = await store.connect("admin")
    assert (
        await admin.fetchval("SELECT count(*) FROM treadle.blobs WHERE encode(sha256, 'hex') = $1", blob) == 0
    )
    assert (await append_events(world.agent, await world.start(cap.thread_id), events(1))).first == 1


async def test_two_live_threads_of_one_id_are_a_conflict_that_names_the_holder(world: World) -> None:
    await threads.register_thread(world.operator, "team", "key", "first", "uid-1", "lead")
    again = await threads.register_thread(world.operator, "team", "key", "first", "uid-2", "lead")
    with pytest.raises(StoreRejected, match="ThreadIDConflict: threadID key belongs to Thread first"):
        await threads.register_thread(world.operator, "team", "key", "second", "uid-3", "lead")

    adopted = await threads.register_thread(
        world.operator, "team", "key", "second", "uid-3", "lead", adopt=True
    )

    assert adopted.thread_id == again.thread_id
    other = await threads.register_thread(world.operator, "elsewhere", "key", "first", "uid-4", "lead")
    assert other.thread_id != again.thread_id


@pytest.mark.req("R48")
async def test_events_are_listed_by_run_type_task_and_seq_in_pages(world: World, store: Store) -> None:
    cap = await world.start()
    mixed = [
        *events(2),
        *events(2, "tool.result"),
        *(replace(event, task_id="sub-1") for event in events(2)),
    ]
    answer = await append_events(world.agent, cap, mixed)
    assert (answer.first, answer.last, answer.new) == (1, 6, 6)
    await settle(world.agent, cap)
    second = await world.start(cap.thread_id)
    await append_events(world.agent, second, events(1))
    gateway = await store.pool("gateway")

    async def seqs(**filters: object) -> list[int]:
        return [e.seq for e in await list_events(gateway, cap.thread_id, **filters)]  # type: ignore[arg-type]

    assert await seqs() == list(range(1, 10))
    assert await seqs(limit=3, after_seq=4) == [5, 6, 7]
    assert await seqs(run_id=second.run_id) == [9]
    assert await seqs(types=["tool.result", "run.end"]) == [3, 4, 7]
    assert await seqs(task_id="sub-1") == [5, 6]
    assert await seqs(run_id=cap.run_id, types=["message"], task_id="sub-1", after_seq=5) == [6]
    (stored,) = await list_events(gateway, cap.thread_id, after_seq=8)
    assert (stored.run_id, stored.token, stored.payload) == (second.run_id, second.token, {"n": 0})
