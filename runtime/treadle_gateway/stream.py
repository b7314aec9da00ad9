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
from .slots import Held

logger = logging.getLogger(__name__)


class _Stream(EventSourceResponse):
    """Ends without a trace in the server's log when the client takes nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            logger.info("stream closed: the client takes nothing")


async def stream(request: Request) -> Held:
    given = services(request)
    run = await permitted_run(request)
    try:
        cursor = Cursor.parse(request.headers.get("last-event-id", ""))
    except BadCursor as error:
        raise Problem(400, "BadCursor", str(error)) from error
    given.streams.take()
    follower = Follower(given.records, given.reader, run, given.pace)
    response = _Stream(
        follower.follow(cursor),
        ping=given.heartbeat_seconds,
        ping_message_factory=lambda: frames.heartbeat(follower.at),
        send_timeout=given.send_seconds,
    )
    return Held(given.streams, response)
