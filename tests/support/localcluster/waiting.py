"""The one place where this (synchronous) program waits for something that only polling can tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(what: str, condition: Callable[[], T], *, seconds: float, every: float = 0.2) -> T:
    """Poll `condition` until it is truthy and return its value; TimeoutError says what never came."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what}: not seen within {seconds:g} s")
        time.sleep(every)  # noqa: TID251 - no event loop here: this program runs commands one after another
    return value
