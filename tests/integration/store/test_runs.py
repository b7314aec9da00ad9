"""The run record: admission, the queue, assignment, claims, and what is read of it."""

from dataclasses import replace
from uuid import uuid4

import pytest

from support.invariants import violations
from support.store_world import HOLDER, World, settle
from support.stores import Store
from treadle_api.contract import INPUT_BYTES_LIMIT
from treadle_api.records import (
    AdmitFile,
    Capability,
    LossClass,
    RunRecord,
    RunStatus,
    RunUID,
    ThreadID,
)
from treadle_store import agent, runs
from treadle_store.errors import StoreRejected
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
