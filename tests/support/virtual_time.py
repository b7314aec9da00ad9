"""An event loop whose clock jumps to the next timer instead of waiting: hours of back-off in milliseconds."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps: what the loop would have waited is added to its clock."""

    jumped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("nothing will ever happen: the loop waits without a timer")
        if not ready and timeout is not None:
            self.jumped += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return 1000.0 + self._jumping.jumped


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Runs `main` to its end in a loop of its own; `loop.time()` starts at 1000 seconds."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)
