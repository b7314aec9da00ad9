"""The queue of a run's writes, against a store that answers on command."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from support.eventually import eventually
from treadle_api.records import Appended, Capability, Event, FencingToken, Manifest, RunUID, ThreadID
from treadle_runtime import sender as module
from treadle_runtime.sender import Limits, StepSender
from treadle_store.checkpoints import ChannelBlob, CheckpointRow, WriteRow
from treadle_store.errors import StaleToken, StoreError, StoreRejected, StoreUnavailable

CAPABILITY = Capability(ThreadID("t"), RunUID("r"), FencingToken(1), b"k")
QUICK = Limits(first_delay=0.001, longest_delay=0.002, retry_seconds=0.5)


@dataclass
class Step:
    events: list[Event]
    writes: list[WriteRow]
    checkpoints: list[CheckpointRow]
    retry: bool
    manifest: Manifest | None = None


@dataclass
class ScriptedStore:
    """Answers `commit_step`; waits for `gate`, then takes the next entry of `script` (an error or None)."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    script: list[Callable[[Step], StoreError | None]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    head: int = 0

    async def commit_step(self, _db: object, _cap: Capability, **rows: Any) -> Appended:
        step = Step(**rows)
        self.steps.append(step)
        await self.gate.wait()
        error = self.script.pop(0)(step) if self.script else None
        if error is not None:
            raise error
        first = self.head + 1
        self.head += len(step.events)
        return Appended(first, self.head, len(step.events), None)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> ScriptedStore:
    scripted = ScriptedStore()
    monkeypatch.setattr(module, "commit_step", scripted.commit_step)
    return scripted


def new_sender(limits: Limits = QUICK, **options: Any) -> StepSender:
    return StepSender(None, CAPABILITY, limits=limits, **options)  # type: ignore[arg-type]


def event(kind: str = "message") -> Event:
    return Event(uuid4(), kind, {})


def write(task: str, size: int = 1) -> WriteRow:
    return WriteRow("", "c1", task, "", 0, "xs", "msgpack", b"x" * size)


def checkpoint(name: str) -> CheckpointRow:
    return CheckpointRow("", name, None, {}, {}, (ChannelBlob("xs", "1", "msgpack", b"x"),))


async def started(*calls: Any) -> list[asyncio.Task[Appended]]:
    """The calls as tasks, each of which has reached the queue before the next one starts."""
    tasks = []
    for call in calls:
        tasks.append(asyncio.create_task(call))
        await asyncio.sleep(0)
    return tasks


async def under_way(store: ScriptedStore) -> None:
    async def probe() -> bool:
        return len(store.steps) == 1

    await eventually(probe, "the first statement is under way")


async def test_what_waits_while_a_statement_is_under_way_travels_together_in_the_next_one(
    store: ScriptedStore,
) -> None:
    sender = new_sender()
    sent = [event() for _ in range(3)]
    tasks = await started(
        sender.send(events=sent[:1]),
        sender.send(writes=[write("a")]),
        sender.send(events=sent[1:]),
        sender.send(writes=[write("b")]),
        sender.send(checkpoint=checkpoint("c2")),
    )
    store.gate.set()
    answers = await asyncio.gather(*tasks)

    assert [(step.events, len(step.writes), len(step.checkpoints)) for step in store.steps] == [
        (sent[:1], 0, 0),
        (sent[1:], 2, 1),
    ]
    assert [row.task_id for row in store.steps[1].writes] == ["a", "b"]
    assert [(answer.first, answer.last) for answer in answers] == [(1, 1), (2, 1), (2, 3), (4, 3), (4, 3)]


async def test_a_finished_tasks_writes_are_sent_at_once(store: ScriptedStore) -> None:
    sender = new_sender()
    (task,) = await started(sender.send(writes=[write("a")]))
    await under_way(store)
    store.gate.set()
    await task


async def test_the_first_stale_answer_fails_everything_queued_and_is_told_once(store: ScriptedStore) -> None:
    told: list[StoreError] = []
    sender = new_sender(on_stale=told.append)
    store.script = [lambda _step: StaleToken("gone")]
    tasks = await started(*(sender.send(events=[event()]) for _ in range(4)))
    store.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert all(isinstance(result, StaleToken) for result in results)
    with pytest.raises(StaleToken):
        await sender.send(writes=[write("late")])
    with pytest.raises(StaleToken):
        await sender.drained()
    assert len(store.steps) == 1
    assert told == [sender.lost]


async def test_a_full_queue_makes_the_next_caller_wait(store: ScriptedStore) -> None:
    sender = new_sender(Limits(queued_items=2))
    tasks = await started(*(sender.send(writes=[write(str(n))]) for n in range(5)))
    await under_way(store)
    assert not any(task.done() for task in tasks)
    store.gate.set()
    await asyncio.gather(*tasks)
    order = [row.task_id for step in store.steps for row in step.writes]
    assert order == ["0", "1", "2", "3", "4"]
    assert max(len(step.writes) for step in store.steps) <= 2


async def test_an_item_above_every_limit_still_travels_alone(store: ScriptedStore) -> None:
    sender = new_sender(Limits(queued_bytes=10, statement_bytes=10))
    store.gate.set()
    await asyncio.gather(*(sender.send(writes=[write(str(n), size=100)]) for n in range(3)))
    assert [len(step.writes) for step in store.steps] == [1, 1, 1]


async def test_no_statement_holds_more_events_than_the_store_takes(store: ScriptedStore) -> None:
    sender = new_sender(Limits(statement_events=5))
    store.gate.set()
    await asyncio.gather(*(sender.send(events=[event(), event()]) for _ in range(7)))
    assert max(len(step.events) for step in store.steps) <= 5
    assert sum(len(step.events) for step in store.steps) == 14


async def test_a_transient_error_is_retried_as_a_retry_only_after_it_may_have_committed(
    store: ScriptedStore,
) -> None:
    sender = new_sender()
    store.script = [
        lambda _step: StoreUnavailable("refused", maybe_committed=False),
        lambda _step: StoreUnavailable("lost", maybe_committed=True),
        lambda _step: None,
    ]
    store.gate.set()
    await sender.send(events=[event()])
    assert [step.retry for step in store.steps] == [False, False, True]


async def test_a_store_that_stays_away_ends_the_sender_within_its_bound(store: ScriptedStore) -> None:
    sender = new_sender(Limits(first_delay=0.001, longest_delay=0.002, retry_seconds=0.02))
    store.script = [lambda _step: StoreUnavailable("refused", maybe_committed=False)] * 1000
    store.gate.set()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(sender.send(events=[event()]), timeout=5)
    with pytest.raises(StoreUnavailable):
        await sender.send(events=[event()])


async def test_a_refused_item_fails_alone_and_the_others_are_written_in_order(store: ScriptedStore) -> None:
    def refuse_reserved(step: Step) -> StoreError | None:
        refused = any(each.type == "run.end" for each in step.events)
        return StoreRejected("ReservedType", "no") if refused else None

    sender = new_sender()
    store.script = [refuse_reserved] * 10
    tasks = await started(
        sender.send(events=[event("first")]),
        sender.send(events=[event("second")]),
        sender.send(events=[event("run.end")]),
        sender.send(events=[event("third")]),
    )
    store.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, StoreRejected) for result in results] == [False, False, True, False]
    assert [(a.first, a.last) for a in results if isinstance(a, Appended)] == [(1, 1), (2, 2), (3, 3)]


async def test_seqs_are_known_even_after_a_lost_answer(store: ScriptedStore) -> None:
    def commit_and_lose(step: Step) -> StoreError:
        store.head += len(step.events)
        return StoreUnavailable("lost", maybe_committed=True)

    def nothing_new(step: Step) -> None:
        step.events.clear()

    sender = new_sender(head_seq=0)
    store.gate.set()
    await sender.send(events=[event(), event()])

    store.script = [commit_and_lose, nothing_new]
    answer = await sender.send(events=[event(), event(), event()])
    assert (answer.first, answer.last) == (3, 5)


async def test_a_caller_that_gives_up_takes_nothing_back(store: ScriptedStore) -> None:
    sender = new_sender()
    first, second = await started(sender.send(writes=[write("a")]), sender.send(writes=[write("b")]))
    second.cancel()
    store.gate.set()
    await first
    await sender.drained()
    assert [row.task_id for step in store.steps for row in step.writes] == ["a", "b"]


async def test_a_defect_reaches_every_caller_and_ends_the_sender(store: ScriptedStore) -> None:
    def explode(_step: Step) -> StoreError:
        raise ZeroDivisionError

    sender = new_sender()
    store.script = [explode]
    tasks = await started(sender.send(events=[event()]), sender.send(events=[event()]))
    store.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable]
    assert isinstance(sender.lost, StoreUnavailable)
    assert isinstance(sender.lost.__cause__, ZeroDivisionError)


async def test_a_call_outside_the_queue_waits_for_what_was_queued_before_it(store: ScriptedStore) -> None:
    sender = new_sender()
    seen: list[int] = []

    async def count_steps() -> None:
        seen.append(store.head)

    tasks = await started(sender.send(events=[event()]), sender.send(events=[event()]))
    reading = asyncio.create_task(sender.call(count_steps))
    await asyncio.sleep(0)
    assert seen == []
    store.gate.set()
    await asyncio.gather(*tasks, reading)
    assert seen == [2]


async def test_a_stale_read_ends_the_queue_too(store: ScriptedStore) -> None:
    told: list[StoreError] = []
    sender = new_sender(on_stale=told.append)

    async def refused() -> None:
        raise StaleToken("gone")

    with pytest.raises(StaleToken):
        await sender.call(refused)
    with pytest.raises(StaleToken):
        await sender.send(writes=[write("late")])
    assert store.steps == []
    assert len(told) == 1
