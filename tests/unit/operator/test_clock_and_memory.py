"""Since when, and what time it is, by clocks that may step."""

from datetime import UTC, datetime, timedelta

import pytest

from treadle_operator.clock import StoreClock
from treadle_operator.lifecycle.world import Problem
from treadle_operator.memory import Memory

NOON = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)


class Monotonic:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def monotonic() -> Monotonic:
    return Monotonic()


@pytest.mark.req("R97")
def test_a_step_ahead_of_the_stores_clock_moves_nothing(monotonic: Monotonic) -> None:
    clock = StoreClock(monotonic)
    clock.read(NOON)
    monotonic.now += 10
    clock.read(NOON + timedelta(hours=5))
    assert clock.now() == NOON + timedelta(seconds=10)


def test_a_step_back_of_the_stores_clock_is_followed(monotonic: Monotonic) -> None:
    clock = StoreClock(monotonic)
    clock.read(NOON)
    monotonic.now += 10
    clock.read(NOON - timedelta(hours=1))
    monotonic.now += 5
    assert clock.now() == NOON - timedelta(hours=1) + timedelta(seconds=5)


def test_a_fact_ages_until_its_value_changes(monotonic: Monotonic) -> None:
    memory = Memory(monotonic)
    assert memory.seen_for("u", "record", ("running", 1)) == 0
    monotonic.now += 7
    assert memory.seen_for("u", "record", ("running", 1)) == 7
    assert memory.seen_for("u", "record", ("running", 2)) == 0
    monotonic.now += 1
    assert memory.seen_for("u", "record", ("running", 1)) == 0


def test_a_refusal_stands_until_a_later_action_succeeds(monotonic: Monotonic) -> None:
    memory = Memory(monotonic)
    memory.refuse("u", Problem("QueueFull", "the thread has 100 waiting Runs"))
    assert memory.refused("u") is not None
    memory.accept("u")
    assert memory.refused("u") is None


def test_nothing_is_kept_of_what_is_gone(monotonic: Monotonic) -> None:
    memory = Memory(monotonic)
    memory.seen_for("u", "seen")
    memory.refuse("u", Problem("QueueFull", "full"))
    memory.forget("u")
    assert len(memory) == 0
    assert memory.refused("u") is None
