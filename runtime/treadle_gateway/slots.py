"""How much one process carries at once."""

from starlette.types import ASGIApp, Receive, Scope, Send

from .problems import unavailable


class Slots:
    """A bound without a queue: who finds none free is told to come back, best to another replica."""

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self.taken = 0
        self._what = what

    def take(self) -> None:
        """Raises Problem (503) when all are taken. Each take is followed by one `free`."""
        if self.taken >= self.limit:
            detail = f"this gateway already carries {self.limit} {self._what}: try again"
            raise unavailable(f"TooMany{self._what.capitalize()}", detail)
        self.taken += 1

    def free(self) -> None:
        self.taken -= 1


class Held:
    """A response that gives its slot back however it ends."""

    def __init__(self, slots: Slots, response: ASGIApp) -> None:
        self._slots = slots
        self._response = response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            self._slots.free()
