"""Files that a task has changed and whose answer is not yet on its way to the store.

A capture leaves them as they were: were a sibling's write to carry them, an attempt that is cut off right
then would find the changed file without the tool's answer and change it a second time.
"""

import asyncio
from typing import Final

from langgraph.config import get_config

_WAIT_SECONDS: Final = 10.0
_TASK_ID: Final = "__pregel_task_id"
_SAVER: Final = "__pregel_checkpointer"

Chain = tuple[str, ...]
"""A LangGraph task and the tasks around it, outermost first: a subgraph's own writes may never be saved."""


class InFlightTimeout(Exception):
    """Another task has changed the file and did not end in time."""


def current_chain() -> Chain:
    """The task that is executing; empty outside of a graph, and where nothing is saved."""
    try:
        configurable = get_config().get("configurable", {})
    except RuntimeError:
        return ()
    task = configurable.get(_TASK_ID)
    if task is None or not configurable.get(_SAVER):
        return ()
    around = (part.partition(":")[2] for part in configurable.get("checkpoint_ns", "").split("|"))
    return tuple(dict.fromkeys((*filter(None, around), task)))


class InFlight:
    """Which path is changed by which task. One event loop only."""

    def __init__(self) -> None:
        self._chains: dict[str, Chain] = {}
        self._landed = asyncio.Condition()

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self._chains)

    async def begin(self, path: str) -> None:
        """Mark `path` as being changed by the current task; waits for another task's change to land.

        Raises InFlightTimeout after 10 s.
        """
        chain = current_chain()
        if not chain:
            return
        try:
            async with asyncio.timeout(_WAIT_SECONDS), self._landed:
                await self._landed.wait_for(lambda: self._chains.get(path, chain) == chain)
                self._chains[path] = chain
        except TimeoutError as error:
            raise InFlightTimeout(f"{path} is being changed by another tool call; try again") from error

    def land(self, task: str | None) -> None:
        """The changes of `task` may be captured now; None: those of every task, the step is over."""
        if task is None:
            self._chains.clear()
        else:
            self._chains = {path: chain for path, chain in self._chains.items() if task not in chain}

    async def captured(self) -> None:
        """Let those go on who wait for what has landed."""
        async with self._landed:
            self._landed.notify_all()
