"""What can go wrong, each with a sentence that says what to do about it."""

from __future__ import annotations

from collections.abc import Sequence


class ClusterError(Exception):
    """The cluster cannot be had; the message is meant for a person and says what to change."""


class CommandFailed(ClusterError):
    """A command ended with another code than 0, or not within its time."""

    def __init__(self, argv: Sequence[str], reason: str, output: str) -> None:
        tail = output.strip()[-1500:]
        super().__init__(f"`{' '.join(argv)[:300]}` {reason}" + (f":\n{tail}" if tail else ""))
        self.argv = list(argv)
        self.reason = reason
        self.output = output
