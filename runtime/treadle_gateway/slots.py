"""How many streams one process carries."""

from .problems import unavailable


class Slots:
    """A bound without a queue: who finds none free is told to come back, best to another replica."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def take(self) -> None:
        """Raises Problem (503) when all are taken. Each take is followed by one `free`."""
        if self.taken >= self.limit:
            raise unavailable(
                "TooManyStreams", f"this gateway already carries {self.limit} streams: try again"
            )
        self.taken += 1

    def free(self) -> None:
        self.taken -= 1
