"""Ids and versions that must grow, whatever the clock and whatever a node did to `random`."""

import random
import uuid

import pytest
from langgraph.checkpoint.base import id as uuid6_clock
from langgraph.checkpoint.base.id import uuid6

from treadle_runtime.checkpoint_ids import next_version, seed_checkpoint_clock


@pytest.fixture(autouse=True)
def _own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uuid6_clock, "_last_v6_timestamp", None)


def skewed(seconds: int) -> str:
    """An id as a process makes it whose clock is `seconds` ahead."""
    value = uuid6(clock_seq=3).int
    timestamp = ((value >> 80) << 12 | (value >> 64) & 0xFFF) + seconds * 10_000_000
    return str(
        uuid.UUID(int=(timestamp >> 12) << 80 | 6 << 76 | (timestamp & 0xFFF) << 64 | value & (1 << 64) - 1)
    )


def test_ids_start_above_a_head_from_a_clock_that_was_ahead() -> None:
    head = skewed(300)
    assert str(uuid6(clock_seq=1)) < head
    seed_checkpoint_clock(head)
    ids = [str(uuid6(clock_seq=step)) for step in (-2, -1, 0, 1)]
    assert ids == sorted(ids)
    assert ids[0] > head


def test_an_older_head_leaves_the_clock_alone() -> None:
    before = str(uuid6(clock_seq=1))
    seed_checkpoint_clock(skewed(-300))
    assert str(uuid6(clock_seq=1)) > before


@pytest.mark.parametrize("foreign", ["not-an-id", "7d9f6f3e-5b1c-4f0e-9c53-2f6d7b0a9e11", "", "rb-000001"])
def test_an_id_of_another_shape_is_left_out_of_account(foreign: str) -> None:
    seed_checkpoint_clock(foreign)
    assert uuid6_clock._last_v6_timestamp is None


def test_versions_grow_and_never_repeat_even_from_a_seeded_random() -> None:
    versions = []
    for _ in range(2):
        random.seed(0)
        versions.append(next_version("00000000000000000000000000000009.abc"))
    assert versions[0] != versions[1]
    assert all(version > "00000000000000000000000000000009.ffff" for version in versions)
    assert next_version(None).startswith("0" * 31 + "1.")
    assert int(next_version(versions[0]).split(".")[0]) == 11
