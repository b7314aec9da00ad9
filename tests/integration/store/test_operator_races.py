"""Two operators at once: every function has one effect, and both learn the same truth."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from support.invariants import violations
from support.store_world import World, settle
from support.stores import Store
from treadle_api.records import FencingToken, LossClass, RunStatus, RunUID, Settled
from treadle_store import agent, runs, threads
from treadle_store.errors import StaleToken, StoreError

TRIALS = 150

Race = Callable[[World, World], Awaitable[object]]


async def _both(store: Store, race: Race) -> Counter[object]:
    """What came of `TRIALS` races, four at a time; the store must be whole afterwards."""
    agents = await store.pool("agent", max_size=8)
    first = World(await store.pool("operator", max_size=4), agents)
    second = World(await store.pool("operator", max_size=4), agents)
    lanes = asyncio.Semaphore(4)

    async def once() -> object:
        async with lanes:
            return await race(first, second)

    seen = Counter(await asyncio.gather(*(once() for _ in range(TRIALS))))
    assert await violations(await store.connect("admin")) == {}
    return seen


async def test_one_run_is_admitted_once(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        admission = a.admission((await a.thread()).thread_id)
        answers = await asyncio.gather(*(runs.admit_run(w.operator, admission) for w in (a, b)))
        return tuple(sorted(answer.result for answer in answers))

    assert set(await _both(store, race)) == {("admitted", "exists")}


@pytest.mark.req("R18")
async def test_a_full_queue_is_full_for_whoever_comes_at_the_same_moment(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        thread = (await a.thread(max_queued=3)).thread_id
        admissions = [a.admission(thread) for _ in range(6)]
        answers = await asyncio.gather(
            *(runs.admit_run(w.operator, adm) for w, adm in zip((a, b) * 3, admissions, strict=True))
        )
        return tuple(sorted(answer.result for answer in answers))

    assert set(await _both(store, race)) == {("admitted",) * 3 + ("queue_full",) * 3}


@pytest.mark.req("R18")
async def test_one_assignment_for_one_pod_whoever_asks(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        thread = await a.thread()
        run_id = await a.admit(thread.thread_id)
        one, other = await asyncio.gather(*(w.assign(run_id, 1, thread.fencing_token) for w in (a, b)))
        assert one is not None
        return one == other, one.token

    assert set(await _both(store, race)) == {(True, 1)}


@pytest.mark.req("R18")
async def test_of_two_pods_one_gets_the_attempt(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        cap = await a.start()
        answers = await asyncio.gather(
            *(
                runs.assign_run(
                    w.operator,
                    run_id=cap.run_id,
                    attempt=2,
                    expected_token=cap.token,
                    pod=f"{cap.run_id}-{name}",
                    loss=LossClass.RETRY,
                )
                for w, name in ((a, "x"), (b, "y"))
            )
        )
        return sum(answer is not None for answer in answers)

    assert set(await _both(store, race)) == {1}


@pytest.mark.req("R18")
async def test_of_several_queued_runs_only_the_oldest_is_assigned(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        thread = await a.thread()
        queued = [await a.admit(thread.thread_id, created=second) for second in (30, 10, 10, 20)]
        oldest = min(queued[1], queued[2])
        answers = await asyncio.gather(
            *(w.assign(run_id, 1, thread.fencing_token) for run_id in queued for w in (a, b))
        )
        won = [
            run_id
            for run_id, answer in zip(sorted(queued * 2, key=queued.index), answers, strict=True)
            if answer
        ]
        return set(won) == {oldest}

    assert set(await _both(store, race)) == {True}


async def test_an_orphan_is_settled_once(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        cap = await a.start()
        answers = await asyncio.gather(
            _orphan(a, cap.run_id, cap.token, RunStatus.ERROR),
            _orphan(b, cap.run_id, cap.token, RunStatus.TIMEOUT),
        )
        both = [answer for answer in answers if answer is not None]
        assert len({answer.outcome for answer in both}) == 1
        return tuple(sorted(answer.result for answer in both))

    assert set(await _both(store, race)) == {("already", "settled")}


@pytest.mark.req("R24")
async def test_an_agent_and_an_operator_settle_at_once_and_one_receipt_stands(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        cap = await a.start()
        mine, theirs = await asyncio.gather(
            settle(a.agent, cap), _orphan(b, cap.run_id, cap.token, RunStatus.ERROR), return_exceptions=True
        )
        if isinstance(mine, StaleToken):
            return "operator"
        assert isinstance(mine, Settled)
        assert isinstance(theirs, Settled)
        assert (mine.result, theirs.result, theirs.outcome) == ("settled", "already", RunStatus.SUCCESS)
        return "agent"

    assert set(await _both(store, race)) <= {"agent", "operator"}


async def test_settling_an_orphan_against_assigning_it_again(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        cap = await a.start()
        settled, assigned = await asyncio.gather(
            _orphan(a, cap.run_id, cap.token, RunStatus.ERROR),
            b.assign(cap.run_id, 2, cap.token, loss=LossClass.RETRY),
        )
        return (settled is None) + (assigned is None)

    assert set(await _both(store, race)) == {1}


async def test_one_thread_is_registered_once(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        key = f"key-{id(asyncio.current_task())}"
        rows = await asyncio.gather(
            *(threads.register_thread(w.operator, "team", key, "t", "uid", "lead") for w in (a, b, a, b))
        )
        return len(set(rows))

    assert set(await _both(store, race)) == {1}


async def test_one_thread_is_retired_once_and_its_run_ends(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        cap = await a.start()
        thread = await threads.read_thread(a.operator, cap.thread_id)
        assert thread is not None
        answers = await asyncio.gather(
            *(threads.retire_thread(w.operator, "team", thread.thread_key) for w in (a, b)),
            runs.admit_run(a.operator, a.admission(cap.thread_id)),
            b.assign(cap.run_id, 2, cap.token, loss=LossClass.RETRY),
            agent.heartbeat(a.agent, cap),
            return_exceptions=True,
        )
        assert not [e for e in answers if isinstance(e, StoreError) and not isinstance(e, StaleToken)]
        after = (await runs.read_runs(a.operator, [cap.run_id]))[cap.run_id]
        return answers[:2].count(True), after.status, after.receipt is not None

    assert set(await _both(store, race)) == {(1, RunStatus.CANCELLED, True)}


async def test_the_first_cancel_wins_and_both_learn_which(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        cap = await a.start()
        answers = await asyncio.gather(
            runs.request_cancel(a.operator, cap.run_id, "keep", "Cancelled"),
            runs.request_cancel(b.operator, cap.run_id, "rollback", "Superseded"),
        )
        return answers[0] == answers[1]

    assert set(await _both(store, race)) == {True}


async def test_a_cancel_against_the_point_of_no_return(store: Store) -> None:
    async def race(a: World, b: World) -> object:
        cap = await a.start()
        finalizing, cancel = await asyncio.gather(
            agent.begin_finalizing(a.agent, cap),
            runs.request_cancel(b.operator, cap.run_id, "keep", "Cancelled"),
            return_exceptions=True,
        )
        assert isinstance(cancel, tuple)
        cancelled = cancel[1] is not None
        assert cancelled == isinstance(finalizing, StoreError)
        answer = await settle(a.agent, cap)
        assert answer.result == ("cancel_won" if cancelled else "settled")
        if cancelled:
            assert (await settle(a.agent, cap, RunStatus.CANCELLED)).result == "settled"
        return cancelled

    assert set(await _both(store, race)) <= {True, False}


async def test_fencing_everything_meets_no_deadlock(store: Store) -> None:
    world = World(await store.pool("operator", max_size=8), await store.pool("agent", max_size=8))
    caps = [await world.start() for _ in range(20)]
    admin = await store.connect("admin")

    async def keep_going(cap_number: int) -> None:
        cap = caps[cap_number]
        for attempt in range(2, 8):
            record = (await runs.read_runs(world.operator, [cap.run_id]))[cap.run_id]
            await world.assign(cap.run_id, attempt, record.thread_token, loss=LossClass.RETRY)

    async def fence() -> None:
        for _ in range(5):
            await admin.fetch("SELECT * FROM treadle.fence_all(1)")

    await asyncio.gather(fence(), *(keep_going(number) for number in range(len(caps))))

    assert await violations(admin) == {}


async def test_a_replaced_attempt_keeps_its_class_and_reason(store: Store) -> None:
    world = World(await store.pool("operator"), await store.pool("agent"))
    cap = await world.start()
    second = await world.take_over(cap)
    await world.assign(cap.run_id, 3, second.token, loss=LossClass.RETRY)

    record = (await runs.read_runs(world.operator, [cap.run_id]))[cap.run_id]

    assert (record.retries, record.disruptions, record.attempt) == (1, 1, 3)
    assert [a.loss for a in record.attempts] == [LossClass.DISRUPTION, LossClass.RETRY, None]
    assert record.attempts[0].ended is not None
    assert replace(record.attempts[0], ended=None, started=record.created_at).pod_uid == "pod-uid-1"


async def _orphan(world: World, run_id: RunUID, token: int, outcome: RunStatus) -> Settled | None:
    return await runs.settle_orphan(
        world.operator,
        run_id=run_id,
        expected_token=FencingToken(token),
        outcome=outcome,
        reason="HolderLost",
        message="the holder was lost",
    )
