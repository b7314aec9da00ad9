"""Every rung is said aloud, with the time it took, so that nobody waits in front of a silent terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Rung:
    """What one rung of the ladder has to tell: `note` replaces its closing words."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.words = "done"

    def note(self, words: str) -> None:
        self.words = words


def say(name: str, words: str) -> None:
    """One line on standard error (standard output belongs to `env`)."""
    print(f"{name:<12} {words}", file=sys.stderr, flush=True)


@contextmanager
def rung(name: str) -> Iterator[Rung]:
    """Time a rung and close it with one line; a failure names the rung and passes on."""
    started = time.monotonic()
    this = Rung(name)
    try:
        yield this
    except BaseException:
        say(name, f"FAILED after {time.monotonic() - started:.1f} s")
        raise
    say(name, f"{this.words} ({time.monotonic() - started:.1f} s)")


class Progress:
    """At most one line every `every` seconds for a step that takes minutes."""

    def __init__(self, name: str, every: float = 15.0) -> None:
        self._name = name
        self._every = every
        self._started = self._last = time.monotonic()

    def tick(self, words: str) -> None:
        now = time.monotonic()
        if now - self._last >= self._every:
            self._last = now
            say(self._name, f"... {words}, {now - self._started:.0f} s so far")
