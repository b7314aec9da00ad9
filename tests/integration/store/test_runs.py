"""The run record: admission, the queue, assignment, claims, cancel, settlement, and what is read of it."""

from dataclasses import replace
from uuid import uuid4

import pytest

from support.invariants import violations
from support.store_world import HOLDER, World, events, settle
from support.stores import Store
from treadle_api.contract import INPUT_BYTES_LIMIT
from treadle_api.records import (
    AdmitFile,
    Capability,
    LossClass,
    ManifestEntry,
    RunRecord,
    RunStatus,
    RunUID,
    Settled,
    ThreadID,
)
from treadle_store import agent, runs, threads, workspace
from treadle_store.errors import CancelWon, StaleToken, StoreRejected
from treadle_store.events import append_events, list_events
from treadle_store.receipts import read_receipt


@pytest.fixture
async def world(store: Store) -> World:
    return World(await store.pool("operator"), await store.pool("agent"))


async def _record(world: World, run_id: RunUID) -> RunRecord:
    return (await runs.read_runs(world.operator, [run_id]))[run_id]


@pytest.mark.req("R17")
async def test_a_run_s_whole_life_is_in_its_record(world: World, store: Store) -> None:
    thread = await world.thread()
    run_id = await world.admit(thread.thread_id)
    pending = await _record(world, run_id)
    assert (pending.status, pending.attempt, pending.token, pending.queue_position) == (
        RunStatus.PENDING,
        0,
        0,
        0,
    )

    assigned = await world.assign(run_id, 1, pending.thread_token)
    assert assigned is not None
    assert (await _record(world, run_id)).status is RunStatus.ASSIGNED
    taken = await agent.take_assignment(world.agent, assigned.pod_key, HOLDER[0])
    assert taken is not None
    assert (taken.attempt, taken.thread_key, taken.log) == (1, thread.thread_key, "1i1")
    claim = await agent.claim_run(world.agent, taken.capability, *HOLDER)
    assert (claim.input, claim.manifest, claim.baseline, claim.cancel) == ({"text": "hello"}, None, (), None)

    running = await _record(world, run_id)
    assert (running.status, running.active_run, running.holder) == (
        RunStatus.RUNNING,
        run_id,
        "pod-uid-1/nonce",
    )
    assert running.started_at is not None
    await agent.begin_finalizing(world.agent, taken.capability)
    assert (await _record(world, run_id)).status is RunStatus.FINALIZING
    usage = {"input_tokens": 3, "output_tokens": 4}
    await settle(world.agent, taken.capability, receipt={"usage": usage, "model": "gpt"})

    ended = await _record(world, run_id)
    assert (ended.status, ended.stop_reason, ended.active_run) == (RunStatus.SUCCESS, "Delivered", None)
    assert (ended.usage, ended.model) == (usage, "gpt")
    assert ended.ended_at is not None
    assert ended.receipt == await read_receipt(await store.pool("gateway"), run_id)
    assert ended.receipt is not None
    assert (ended.receipt.token, ended.receipt.payload["thread"]) == (ended.token, thread.thread_key)
    assert await violations(await store.connect("admin")) == {}


@pytest.mark.req("R24", "R53")
async def test_a_settlement_writes_end_event_receipt_and_status_together_or_not_at_all(
    world: World, store: Store
) -> None:
    cap = await world.start()
    await append_events(world.agent, cap, events(2))
    missing = {"path": "a", "sha256": "0" * 64, "bytes": 1}
    with pytest.raises(StoreRejected, match="ArtifactMissing: presented file a "):
        await settle(world.agent, cap, receipt={"artifacts": [missing]})
    assert (await _record(world, cap.run_id)).status is RunStatus.RUNNING

    assert await settle(world.agent, cap) == Settled("settled", RunStatus.SUCCESS)

    log = await list_events(world.operator, cap.thread_id)
    assert [event.type for event in log] == ["message", "message", "run.end", "run.delivery"]
    receipt = await read_receipt(world.operator, cap.run_id)
    assert receipt is not None
    assert log[-1].payload == receipt.payload


async def test_terminal_is_terminal(world: World) -> None:
    cap = await world.start()
    await settle(world.agent, cap)

    assert await world.assign(cap.run_id, 2, cap.token) is None
    assert await runs.request_cancel(world.operator, cap.run_id, "keep", "x") == (RunStatus.SUCCESS, None)
    for write in (agent.heartbeat(world.agent, cap), append_events(world.agent, cap, events(1))):
        with pytest.raises(StaleToken):
            await write


@pytest.mark.req("R18")
async def test_runs_of_a_thread_go_one_after_the_other_oldest_object_first(world: World) -> None:
    thread = await world.thread()
    late, early, middle = [await world.admit(thread.thread_id, created=second) for second in (30, 10, 20)]
    order, token = [], 0
    for _ in range(3):
        queued = await runs.list_unfinished(world.operator)
        waiting = {r.run_id: r.queue_position for r in queued if r.status is RunStatus.PENDING}
        for run_id in sorted(waiting, key=lambda r: -waiting[r]):
            assigned = await world.assign(run_id, 1, token)
            assert (assigned is not None) == (waiting[run_id] == 0)
        assert assigned is not None
        order.append(run_id)
        token = assigned.token
        cap = Capability(thread.thread_id, run_id, assigned.token, assigned.fence_key)
        await agent.claim_run(world.agent, cap, *HOLDER)
        await settle(world.agent, cap)

    assert order == [early, middle, late]


async def test_admission_refuses_what_is_too_large_and_says_how_large(world: World) -> None:
    thread = (await world.thread()).thread_id
    admission = world.admission(thread)
    with pytest.raises(StoreRejected, match=r"InputTooLarge: the input is \d+ bytes"):
        await runs.admit_run(world.operator, replace(admission, input={"text": "x" * INPUT_BYTES_LIMIT}))
    with pytest.raises(StoreRejected, match="65 files, 64 are allowed"):
        await runs.admit_run(world.operator, replace(admission, files=[AdmitFile("a", b"")] * 65))
    missing = replace(admission, thread_id=ThreadID(str(uuid4())))
    assert (await runs.admit_run(world.operator, missing)).result == "thread_not_found"
    foreign = replace(admission, namespace="another")
    assert (await runs.admit_run(world.operator, foreign)).result == "thread_not_found"


async def test_input_that_jsonb_refuses_is_admitted_cleaned(world: World) -> None:
    thread = (await world.thread()).thread_id
    admission = replace(world.admission(thread), input={"text": "a\x00b\ud800"})
    assert (await runs.admit_run(world.operator, admission)).result == "admitted"


@pytest.mark.req("R84")
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


async def test_after_an_accepted_cancel_only_cancelled_is_settled(world: World) -> None:
    cap = await world.start()
    await runs.request_cancel(world.operator, cap.run_id, "keep", "Cancelled")

    assert await agent.heartbeat(world.agent, cap) == "keep"
    assert (await append_events(world.agent, cap, events(1))).cancel == "keep"
    with pytest.raises(CancelWon):
        await agent.begin_finalizing(world.agent, cap)
    for outcome in (RunStatus.SUCCESS, RunStatus.ERROR):
        assert await settle(world.agent, cap, outcome) == Settled("cancel_won", RunStatus.RUNNING)
    assert (await settle(world.agent, cap, RunStatus.CANCELLED)).result == "settled"


async def test_an_orphan_s_receipt_says_what_is_known(world: World) -> None:
    cap = await world.start()
    await runs.settle_orphan(
        world.operator,
        run_id=cap.run_id,
        expected_token=cap.token,
        outcome=RunStatus.ERROR,
        reason="BackoffLimitExceeded",
        message="three attempts ended without an answer",
    )

    receipt = await read_receipt(world.operator, cap.run_id)
    assert receipt is not None
    assert receipt.payload == {
        "run": cap.run_id, "thread": (await _record(world, cap.run_id)).thread_key, "attempt": 1, "token": 2,
        "outcome": "error", "reason": "BackoffLimitExceeded",
        "message": "three attempts ended without an answer",
        "checkpoint": None, "message_id": None, "summary": "", "produced": [], "presented": [], "matched": [],
        "artifacts": [], "coverage": "Unknown", "requirement": "All", "journal_complete": False, "usage": {},
        "model": None,
    }  # fmt: skip
    with pytest.raises(StaleToken):
        await settle(world.agent, cap)


async def test_a_queued_run_is_settled_without_disturbing_the_active_one(world: World) -> None:
    cap = await world.start()
    queued = await world.admit(cap.thread_id)

    answer = await runs.settle_orphan(
        world.operator, run_id=queued, expected_token=cap.token, outcome=RunStatus.CANCELLED,
        reason="Deleted", message="The Run was deleted.",
    )  # fmt: skip

    assert answer == Settled("settled", RunStatus.CANCELLED)
    assert (await append_events(world.agent, cap, events(1))).first == 3
    assert (await settle(world.agent, cap)).result == "settled"


async def test_an_orphan_whose_token_moved_on_is_left_alone(world: World) -> None:
    cap = await world.start()
    await world.take_over(cap)
    answer = await runs.settle_orphan(
        world.operator,
        run_id=cap.run_id,
        expected_token=cap.token,
        outcome=RunStatus.ERROR,
        reason="x",
        message="",
    )
    assert answer is None


async def test_losses_are_counted_by_class_and_the_last_ten_attempts_are_shown(world: World) -> None:
    cap = await world.start()
    for attempt in range(2, 14):
        loss = LossClass.RETRY if attempt % 3 == 0 else LossClass.DISRUPTION
        assigned = await world.assign(cap.run_id, attempt, cap.token, loss=loss)
        assert assigned is not None
        cap = replace(cap, token=assigned.token, fence_key=assigned.fence_key)

    record = await _record(world, cap.run_id)

    assert (record.retries, record.disruptions) == (4, 8)
    assert [row.attempt for row in record.attempts] == list(range(4, 14))


async def test_an_assignment_is_the_same_until_it_is_claimed(world: World) -> None:
    thread = await world.thread()
    run_id = await world.admit(thread.thread_id)
    first = await world.assign(run_id, 1, thread.fencing_token)
    assert first is not None
    assert await world.assign(run_id, 1, first.token) == first
    cap = Capability(thread.thread_id, run_id, first.token, first.fence_key)
    await agent.claim_run(world.agent, cap, *HOLDER)

    assert await world.assign(run_id, 1, first.token) is None
    assert first.pod_key not in repr(first)


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


async def test_unfinished_runs_are_listed_in_pages_with_those_that_ended_lately(world: World) -> None:
    caps = [await world.start() for _ in range(5)]
    await settle(world.agent, caps[0])
    everything = sorted(cap.run_id for cap in caps)

    first = await runs.list_unfinished(world.operator, limit=3)
    rest = await runs.list_unfinished(world.operator, after=first[-1].run_id, limit=3)

    assert [record.run_id for record in first + rest] == everything
    open_ones = await runs.list_unfinished(world.operator, ended_within_seconds=0)
    assert {record.run_id for record in open_ones} == {cap.run_id for cap in caps[1:]}
    assert await runs.list_unfinished(world.operator, namespace="another") == []
