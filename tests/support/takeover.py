"""Takeovers against writers that never pause: does anything of a stale owner land afterwards?"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from support.claims import Claimer
from treadle_api.records import Capability
from treadle_store.errors import StaleToken

Write = Callable[[Capability], Awaitable[object]]
CountRows = Callable[[Capability], Awaitable[int]]
"""Rows that carry the capability's thread and token."""


@dataclass(slots=True)
class Attack:
    """What was seen. `late_rows` must be 0, and both `acknowledged` and `refused` must not be."""

    takeovers: int = 0
    late_rows: int = 0
    acknowledged: int = 0
    refused: int = 0
    _in_flight: dict[int, int] = field(default_factory=dict, repr=False)


async def attack(
    claimer: Claimer, writes: Sequence[Write], count_rows: CountRows, *, takeovers: int
) -> Attack:
    """Take one thread over `takeovers` times while one task per entry of `writes` never stops writing.

    After each bump the stale token's rows are counted, and again when its last write has been answered.
    """
    seen = Attack()
    current = await claimer.new_run()
    changed = asyncio.Event()
    over = False

    async def writer(write: Write) -> None:
        while not over:
            mine = current
            seen._in_flight[mine.token] = seen._in_flight.get(mine.token, 0) + 1
            try:
                await write(mine)
                seen.acknowledged += 1
            except StaleToken:
                seen.refused += 1
                while mine is current and not over:
                    await changed.wait()
            finally:
                seen._in_flight[mine.token] -= 1
                answered.set()

    answered = asyncio.Event()
    tasks = [asyncio.create_task(writer(write)) for write in writes]
    try:
        for _ in range(takeovers):
            await asyncio.sleep(random.random() * 0.003)
            lost = current
            successor = await claimer.take_over(lost)
            before = await count_rows(lost)
            current = successor
            changed.set()
            changed.clear()
            while seen._in_flight.get(lost.token, 0) > 0:
                answered.clear()
                await answered.wait()
            seen.late_rows += await count_rows(lost) - before
            seen.takeovers += 1
    finally:
        over = True
        changed.set()
        await asyncio.gather(*tasks)
    return seen
