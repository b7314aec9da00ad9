"""The one way in which a test waits."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(
    probe: Callable[[], Awaitable[T]], what: str, *, within: float = 10.0, every: float = 0.02
) -> T:
    """Repeats `probe` until its answer is truthy, and returns that; fails with `what` after `within` s."""
    deadline = time.monotonic() + within
    while True:
        if answer := await probe():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what} (last answer: {answer!r})")
        await asyncio.sleep(every)
