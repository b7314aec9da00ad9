"""Back-off between attempts, and conditions that keep their times."""

from datetime import timedelta

import pytest

from support.factories import NOW, dead_pod
from treadle_api.records import LossClass
from treadle_api.resolved import ResolvedRetry
from treadle_operator.lifecycle.conditions import set_condition, stamp, word
from treadle_operator.lifecycle.loss import backoff, of_pod

RETRY = ResolvedRetry(backoff_seconds=5, backoff_cap_seconds=60)


@pytest.mark.parametrize(("count", "seconds"), [(0, 5), (1, 10), (2, 20), (3, 40), (4, 60), (500, 60)])
def test_retries_wait_twice_as_long_each_time_up_to_the_cap(count: int, seconds: float) -> None:
    assert backoff(RETRY, LossClass.RETRY, retries=count, disruptions=9) == seconds


@pytest.mark.parametrize(("count", "seconds"), [(0, 0), (1, 5), (2, 10), (9, 60)])
def test_the_first_disruption_costs_no_wait(count: int, seconds: float) -> None:
    assert backoff(RETRY, LossClass.DISRUPTION, retries=9, disruptions=count) == seconds


def test_a_store_that_an_agent_could_not_use_is_told_with_the_next_step() -> None:
    loss = of_pod(dead_pod(75, reason="StoreUnavailable", message="connection refused"))
    assert loss.message == (
        "Pod review-a1 could not use the store: connection refused;"
        " bring Postgres back, or correct the dsn in the store's Secret"
    )


def test_a_condition_keeps_its_time_while_its_status_stands() -> None:
    first = set_condition((), "Owned", "True", "Taken", "It runs", now=NOW, generation=1)
    later = NOW + timedelta(hours=1)
    same = set_condition([first], "Owned", "True", "Taken", "Still", now=later, generation=2)
    other = set_condition([first], "Owned", "False", "PodLost", "It is gone", now=later, generation=2)
    assert (same["lastTransitionTime"], same["message"], same["observedGeneration"]) == (
        stamp(NOW),
        "Still",
        2,
    )
    assert other["lastTransitionTime"] == stamp(later)


def test_a_condition_without_a_message_is_a_fault() -> None:
    with pytest.raises(ValueError, match="needs a message"):
        set_condition((), "Owned", "True", "Taken", "", now=NOW, generation=1)


@pytest.mark.parametrize("said", [None, "", "two words", "lower", "A" * 64, 7])
def test_a_reason_that_the_crd_refuses_is_replaced(said: object) -> None:
    assert word(said, "AgentError") == "AgentError"
