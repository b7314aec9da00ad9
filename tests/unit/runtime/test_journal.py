"""The journal: in order, nothing lost, nothing twice, back-pressure instead of drops."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.eventually import eventually
from treadle_api.records import Event
from treadle_runtime.events import make_event
from treadle_runtime.journal import Journal, JournalLimits
from treadle_store.errors import StaleToken, StoreRejected, StoreUnavailable


class Log:
    """A sink that fails on command."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.failures: list[Exception | None] = []
        """What the next calls raise, one after the other; None: that call does not fail."""
        self.refused: set[int] = set()
        self.gate: asyncio.Event | None = None

    @property
    def numbers(self) -> list[int]:
        return [number for batch in self.batches for number in batch]

    async def __call__(self, events: Sequence[Event]) -> None:
        if self.gate is not None:
            await self.gate.wait()
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        numbers = [event.payload["n"] for event in events]
        if self.refused.intersection(numbers):
            raise StoreRejected("EventInvalid", "refused")
        self.batches.append(numbers)


def event(number: int) -> Event:
    return make_event("message", {"n": number})


@pytest.mark.req("R49")
async def test_a_failed_batch_returns_to_the_front_in_order() -> None:
    log = Log()
    journal = Journal(log, JournalLimits(batch=2))
    for number in range(5):
        await journal.record(event(number))
    log.failures.append(StoreUnavailable("away", maybe_committed=True))
    with pytest.raises(StoreUnavailable):
        await journal.flush()
    await journal.record(event(5))
    await journal.flush()
    assert log.numbers == [0, 1, 2, 3, 4, 5]
    assert journal.complete


@pytest.mark.req("R49")
async def test_it_flushes_by_itself_when_the_threshold_is_reached_or_the_window_is_over() -> None:
    log = Log()
    async with Journal(log, JournalLimits(threshold=3, window=0.01)) as journal:
        for number in range(3):
            await journal.record(event(number))
        await _holds(log, [0, 1, 2])
        await journal.record(event(3))
        await _holds(log, [0, 1, 2, 3])


@pytest.mark.req("R49")
async def test_a_full_buffer_is_back_pressure_and_never_a_drop() -> None:
    log = Log()
    journal = Journal(log, JournalLimits(buffered=2))
    await journal.record(event(0))
    await journal.record(event(1))
    waiting = asyncio.ensure_future(journal.record(event(2)))
    await asyncio.sleep(0)
    assert not waiting.done()
    await journal.flush()
    await waiting
    await journal.flush()
    assert log.numbers == [0, 1, 2]


async def test_an_event_that_the_log_refuses_for_good_is_said_and_stops_no_neighbour() -> None:
    log = Log()
    log.refused = {1}
    journal = Journal(log)
    for number in range(3):
        await journal.record(event(number))
    await journal.flush()
    assert log.numbers == [0, 2]
    assert not journal.complete


@pytest.mark.req("R49")
async def test_neighbours_of_a_refused_event_return_to_the_front_when_the_store_goes_away() -> None:
    log = Log()
    log.refused = {1}
    log.failures = [None, None, None, StoreUnavailable("away", maybe_committed=True)]
    journal = Journal(log)
    for number in range(5):
        await journal.record(event(number))
    with pytest.raises(StoreUnavailable):
        await journal.flush()
    assert log.numbers == [0]
    await journal.record(event(5))
    await journal.flush()
    assert log.numbers == [0, 2, 3, 4, 5]
    assert not journal.complete


async def test_a_step_takes_along_what_is_buffered_and_gives_it_back_if_it_fails() -> None:
    log = Log()
    journal = Journal(log)
    for number in range(3):
        await journal.record(event(number))
    taken = journal.take()
    await journal.record(event(3))
    journal.give_back(taken)
    await journal.flush()
    assert log.numbers == [0, 1, 2, 3]


async def test_nothing_is_taken_past_a_flush_that_is_under_way() -> None:
    log = Log()
    log.gate = asyncio.Event()
    journal = Journal(log, JournalLimits(batch=1))
    await journal.record(event(0))
    await journal.record(event(1))
    flushing = asyncio.ensure_future(journal.flush())
    await asyncio.sleep(0)
    assert journal.take() == []
    log.gate.set()
    await flushing
    assert log.numbers == [0, 1]


async def test_a_lost_token_ends_whoever_waits_for_room() -> None:
    log = Log()
    log.failures = [StaleToken("stale")]
    async with Journal(log, JournalLimits(threshold=1, buffered=1, window=0)) as journal:
        await journal.record(event(0))
        with pytest.raises(StaleToken):
            await asyncio.wait_for(_record(journal, 3), 5)


@pytest.mark.req("R49")
@given(st.lists(st.sampled_from(["record", "flush", "fail", "take"]), max_size=30))
async def test_whatever_fails_in_between_the_order_is_kept(steps: list[str]) -> None:
    log = Log()
    journal = Journal(log, JournalLimits(batch=2))
    count = 0
    for step in steps:
        if step == "record":
            await journal.record(event(count))
            count += 1
        elif step == "take":
            journal.give_back(journal.take())
        else:
            if step == "fail" and journal.buffered:
                log.failures.append(StoreUnavailable("away", maybe_committed=False))
            try:
                await journal.flush()
            except StoreUnavailable:
                continue
    await journal.flush()
    assert log.numbers == list(range(count))


async def _holds(log: Log, numbers: list[int]) -> None:
    async def flushed() -> bool:
        return log.numbers == numbers

    await eventually(flushed, f"the log holds {numbers}", within=5, every=0.005)


async def _record(journal: Journal, count: int) -> None:
    for number in range(count):
        await journal.record(event(number))
