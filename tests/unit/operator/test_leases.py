"""How long a Lease has been silent, by our own clock alone."""

from typing import Any

import pytest

from treadle_api.names import ANNOTATION_POD, LABEL_RUN
from treadle_operator.leases import LeaseBook


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lease(version: int, *, run: str = "r1", holder: str = "pod-uid/nonce", pod: str = "run-a1") -> Any:
    return {
        "metadata": {
            "name": f"run-{run}",
            "uid": f"uid-{run}",
            "resourceVersion": str(version),
            "labels": {LABEL_RUN: run},
            "annotations": {ANNOTATION_POD: pod},
        },
        "spec": {"holderIdentity": holder, "renewTime": "1970-01-01T00:00:00.000000Z"},
    }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> LeaseBook:
    return LeaseBook(clock)


def listed(book: LeaseBook, clock: Clock, *leases: Any) -> set[str]:
    return book.listed(leases, began=clock.now)


def silence(book: LeaseBook, run: str = "r1") -> float:
    seen = book.of_run(run)
    assert seen is not None
    return seen.silent


def test_silence_grows_only_while_the_lease_does_not_change(book: LeaseBook, clock: Clock) -> None:
    listed(book, clock, lease(1))
    for _ in range(4):
        clock.now += 5
        listed(book, clock, lease(1))
    assert silence(book) == 20
    clock.now += 5
    listed(book, clock, lease(2))
    assert silence(book) == 0


@pytest.mark.req("R97")
def test_the_renew_time_in_the_lease_is_never_compared_with_a_clock(book: LeaseBook, clock: Clock) -> None:
    listed(book, clock, lease(1))  # renewTime is of 1970
    assert silence(book) == 0


def test_time_in_which_the_api_server_was_out_of_reach_does_not_count(book: LeaseBook, clock: Clock) -> None:
    listed(book, clock, lease(1))
    clock.now += 5
    listed(book, clock, lease(1))
    clock.now += 600  # no list worked meanwhile
    listed(book, clock, lease(1))
    assert silence(book) == 5
    clock.now += 5
    listed(book, clock, lease(1))
    assert silence(book) == 10


def test_a_renewal_is_no_news_but_a_claim_a_release_and_a_deletion_are(book: LeaseBook, clock: Clock) -> None:
    assert listed(book, clock, lease(1, holder="")) == {"r1"}
    assert listed(book, clock, lease(2, holder="pod/n")) == {"r1"}
    assert listed(book, clock, lease(3, holder="pod/n")) == set()
    assert listed(book, clock, lease(4, holder="")) == {"r1"}
    clock.now += 5
    assert listed(book, clock) == {"r1"}
    assert book.of_run("r1") is None
    assert listed(book, clock) == set()


def test_a_lease_that_was_read_live_counts_like_a_listed_one(book: LeaseBook, clock: Clock) -> None:
    listed(book, clock, lease(1))
    clock.now += 4
    assert book.seen(lease(1)).silent == 4
    clock.now += 3
    assert book.seen(lease(5)).silent == 0


def test_a_list_asked_for_before_our_own_write_does_not_hide_it(book: LeaseBook, clock: Clock) -> None:
    began = clock.now
    clock.now += 1
    book.seen(lease(7))
    clock.now += 1
    assert book.listed([], began=began) == set()
    assert book.of_run("r1") is not None
