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

    async def first_end(self) -> BaseException | None:
        """Waits until one of the tasks has ended; what it raised."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return next((error for task in done if (error := task.exception())), None)

    async def cancel(self, *spared: asyncio.Task[None]) -> None:
        """Cancels all but the spared and waits for their ends."""
        ending = self._tasks - set(spared)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._tasks -= ending
