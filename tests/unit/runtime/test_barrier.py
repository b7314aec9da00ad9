"""The barrier: everybody settles, then the first failure is raised; nobody missing."""

import asyncio

import pytest

from treadle_runtime.barrier import REQUIRED, Barrier, BarrierIncomplete


@pytest.mark.req("R57")
async def test_all_participants_settle_before_the_first_failure_is_raised() -> None:
    barrier = Barrier(required=())
    settled: list[str] = []

    async def slow() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        settled.append("slow")

    async def failing() -> None:
        settled.append("failing")
        raise ValueError("first")

    async def last() -> None:
        assert settled == ["failing", "slow"]
        settled.append("last")
        raise KeyError("second")

    barrier.mount("failing", failing)
    barrier.mount("slow", slow)
    barrier.mount("confirm", last, last=True)
    with pytest.raises(ValueError, match="first"):
        await barrier()
    assert settled == ["failing", "slow", "last"]


@pytest.mark.req("R57")
async def test_the_answer_names_who_took_part() -> None:
    barrier = Barrier(required=())
    assert await barrier() == ()

    async def nothing() -> None:
        pass

    barrier.mount("b", nothing, last=True)
    barrier.mount("a", nothing)
    assert await barrier() == ("a", "b")
    with pytest.raises(ValueError, match="mounted already"):
        barrier.mount("a", nothing)


async def test_a_required_participant_that_is_missing_is_an_error() -> None:
    barrier = Barrier()
    with pytest.raises(BarrierIncomplete, match=", ".join(REQUIRED)):
        barrier.check()
    with pytest.raises(BarrierIncomplete):
        await barrier()


async def test_a_cancelled_participant_is_not_swallowed() -> None:
    barrier = Barrier(required=())

    async def cancelled() -> None:
        raise asyncio.CancelledError

    barrier.mount("a", cancelled)
    with pytest.raises(asyncio.CancelledError):
        await barrier()
