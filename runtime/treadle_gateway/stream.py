"""GET .../stream: one run, live and from the log, as server-sent events."""

import logging

from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from . import frames
from .cursor import BadCursor, Cursor
from .follow import Follower
from .problems import Problem
from .services import permitted_run, services
from .slots import Slots

logger = logging.getLogger(__name__)


class _Stream(EventSourceResponse):
    """Gives its slot back however it ends."""

    def __init__(
        self, slots: Slots, follower: Follower, cursor: Cursor | None, heartbeat: float, send: float
    ) -> None:
        super().__init__(
            follower.follow(cursor),
            ping=heartbeat,
            ping_message_factory=lambda: frames.heartbeat(follower.at),
            send_timeout=send,
        )
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            logger.info("stream closed: the client takes nothing")
        finally:
            self._slots.free()


async def stream(request: Request) -> EventSourceResponse:
    given = services(request)
    run = await permitted_run(request)
    try:
        cursor = Cursor.parse(request.headers.get("last-event-id", ""))
    except BadCursor as error:
        raise Problem(400, "BadCursor", str(error)) from error
    given.slots.take()
    follower = Follower(given.records, given.reader, run, given.pace)
    return _Stream(given.slots, follower, cursor, given.heartbeat_seconds, given.send_seconds)
