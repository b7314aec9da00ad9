"""Where a client stands in a log: `<log>.<seq>-<n>`, the `id:` of every frame.

`seq` is the durable part: events up to it were received. `n` counts the deltas behind event `seq` and means
something only as long as Redis keeps them.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

ALL_DELTAS: Final = 2**53 - 1
"""`n` of a cursor that wants no more deltas of `seq`."""
FROM_START: Final = frozenset({"", "-", "-1"})
"""What clients send that hold no cursor (the JavaScript SDK sends -1)."""

_CURSOR = re.compile(r"(?P<log>[0-9]{1,10}i[0-9]{1,10})\.(?P<seq>[0-9]{1,16})-(?P<n>[0-9]{1,16})", re.ASCII)


class BadCursor(ValueError):
    """Not a cursor; the message says what one looks like."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in one log; ordered only against cursors of the same log."""

    log: str
    seq: int
    n: int

    def __str__(self) -> str:
        return f"{self.log}.{self.seq}-{self.n}"

    @property
    def position(self) -> tuple[int, int]:
        return self.seq, self.n

    def followed_by(self, entry: tuple[int, int]) -> bool:
        """Whether `entry` comes next, so that no delta can lie between."""
        nothing_more = self.n == ALL_DELTAS and entry in {(self.seq + 1, 0), (self.seq + 1, 1)}
        return nothing_more or entry == (self.seq, self.n + 1)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The cursor of a `Last-Event-ID`, None for "from the start". Raises BadCursor."""
        text = text.strip()
        if text in FROM_START:
            return None
        match = _CURSOR.fullmatch(text)
        if not match or int(match["seq"]) > ALL_DELTAS or int(match["n"]) > ALL_DELTAS:
            raise BadCursor(
                "Last-Event-ID must be the id of a frame of this stream, like 1i1.57-3; "
                "leave it out, or send -, to read from the start"
            )
        return cls(match["log"], int(match["seq"]), int(match["n"]))


def before(log: str, entry: tuple[int, int]) -> Cursor:
    """The cursor after which `entry` comes next."""
    seq, n = entry
    return Cursor(log, seq, n - 1) if n else Cursor(log, seq - 1, ALL_DELTAS)
