"""Tasks that run as long as the process."""

import asyncio

import pytest

from treadle_operator.background import Background, unless
from treadle_operator.failpoints import FailpointReached, Failpoints


async def fail() -> None:
    raise RuntimeError("broken")


async def last() -> None:
    await asyncio.Event().wait()


async def test_the_first_part_that_ends_is_told_with_what_it_raised() -> None:
    background = Background()
    background.start("good", last())
    background.start("bad", fail())
    ended = await background.first_end(asyncio.Event())
    assert ended is not None
    assert ended.get_name() == "bad"
    assert isinstance(ended.exception(), RuntimeError)
    await background.cancel()


async def test_being_told_to_stop_is_no_end_of_a_part() -> None:
    background, stop = Background(), asyncio.Event()
    background.start("good", last())
    stop.set()
    assert await background.first_end(stop) is None
    await background.cancel()


async def test_a_spared_part_goes_on() -> None:
    background = Background()
    spared, ended = background.start("spared", last()), background.start("ended", last())
    await background.cancel(spared)
    assert ended.cancelled()
    assert not spared.done()
    await background.cancel()
    assert spared.cancelled()


async def test_waiting_ends_when_it_is_done_or_when_we_are_told_to_stop() -> None:
    stop = asyncio.Event()
    assert await unless(stop, asyncio.sleep(0))
    with pytest.raises(RuntimeError):
        await unless(stop, fail())
    stop.set()
    assert not await unless(stop, last())


def test_an_armed_failpoint_fires_once() -> None:
    failpoints = Failpoints.parse("after_pod=raise")
    failpoints.hit("after_lease")
    with pytest.raises(FailpointReached):
        failpoints.hit("after_pod")
    failpoints.hit("after_pod")
