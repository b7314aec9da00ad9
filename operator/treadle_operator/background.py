"""Tasks that run as long as the process: the first that ends ends it (crash-only)."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Background:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(main, name=name)
        self._tasks.add(task)
        return task

    async def first_end(self, stop: asyncio.Event) -> asyncio.Task[None] | None:
        """Waits until a task has ended or `stop` is set; the task that ended by itself, None for `stop`."""
        stopped = asyncio.get_running_loop().create_task(stop.wait())
        done, _ = await asyncio.wait({*self._tasks, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await asyncio.wait({stopped})
        return None if stop.is_set() else next(task for task in self._tasks if task in done)

    async def cancel(self, *spared: asyncio.Task[None]) -> None:
        """Cancels all but the spared and waits for their ends."""
        ending = self._tasks - set(spared)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._tasks -= ending


async def unless(stop: asyncio.Event, main: Coroutine[Any, Any, None]) -> bool:
    """Runs `main`, or cancels it once `stop` is set; whether it came to its end. Raises what it raises."""
    loop = asyncio.get_running_loop()
    task, stopped = loop.create_task(main), loop.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finished = task.done()
    for each in (task, stopped):
        each.cancel()
    await asyncio.wait({task, stopped})
    if finished:
        task.result()
    return finished
