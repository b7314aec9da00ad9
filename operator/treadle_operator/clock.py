"""The time by which deadlines are judged: the store's clock, as far as our monotonic clock confirms it.

A step of the store's clock (or a failover to a server with another) must end no run: the time that is given
out never runs ahead of the monotonic clock since the first reading, and never goes back (R97).
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class StoreClock:
    """`monotonic` in seconds. Before the first reading it gives this host's time."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._base: tuple[datetime, float] | None = None

    def read(self, store_now: datetime) -> None:
        """Takes in a reading of the store's clock. A step back is followed, a step ahead is not."""
        now = self._monotonic()
        if self._base is None or store_now < self._at(self._base, now):
            self._base = (store_now, now)

    def now(self) -> datetime:
        if self._base is None:
            return datetime.now(UTC)
        return self._at(self._base, self._monotonic())

    @staticmethod
    def _at(base: tuple[datetime, float], monotonic: float) -> datetime:
        return base[0] + timedelta(seconds=monotonic - base[1])
