"""Files that a task has changed and whose answer is not yet on its way to the store.

A capture leaves them as they were: were a sibling's write to carry them, an attempt that is cut off right
then would find the changed file without the tool's answer and change it a second time.
"""

import asyncio
from typing import Final

from langgraph.config import get_config

_TASK_ID: Final = "__pregel_task_id"
_WAIT_SECONDS: Final = 30.0


class InFlightTimeout(Exception):
    """Another task has changed the file and did not end in time."""


def current_task() -> str | None:
    """The LangGraph task that is executing, None outside of a graph."""
    try:
        configurable = get_config().get("configurable", {})
    except RuntimeError:
        return None
    task: str | None = configurable.get(_TASK_ID)
    return task


class InFlight:
    """Which path is changed by which task. One event loop only."""

    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}
        self._landed = asyncio.Condition()

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self._tasks)

    async def begin(self, path: str) -> None:
        """Mark `path` as being changed by the current task; waits for another task's change to land.

        Raises InFlightTimeout after 30 s.
        """
        task = current_task()
        if task is None:
            return
        try:
            async with asyncio.timeout(_WAIT_SECONDS), self._landed:
                await self._landed.wait_for(lambda: self._tasks.get(path, task) == task)
                self._tasks[path] = task
        except TimeoutError as error:
            raise InFlightTimeout(f"{path} is being changed by another tool call; try again") from error

    def land(self, task: str | None) -> None:
        """The changes of `task` may be captured now; None: those of every task, the step is over."""
        if task is None:
            self._tasks.clear()
        else:
            self._tasks = {path: owner for path, owner in self._tasks.items() if owner != task}

    async def captured(self) -> None:
        """Let those go on who wait for what has landed."""
        async with self._landed:
            self._landed.notify_all()
