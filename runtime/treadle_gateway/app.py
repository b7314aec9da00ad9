"""The routes and what goes round them."""

import asyncio
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from treadle_store.errors import StoreError

from . import problems, runs
from .services import Services, services
from .stream import stream

READY_SECONDS: Final = 3.0


async def healthz(_: Request) -> Response:
    """The process answers; restarting it would mend nothing else."""
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """The store answers and its schema is new enough. Redis may be away: streams then poll."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            await services(request).records.check()
    except (StoreError, TimeoutError) as error:
        raise problems.unavailable("StoreUnavailable", str(error) or "the store does not answer") from error
    return PlainTextResponse("ok\n")


def create_app(given: Services) -> Starlette:
    """The ASGI application; whoever opens `given` closes it."""
    run = Mount(
        "/ns/{namespace}/v1/runs/{run}",
        routes=[
            Route("/stream", stream),
            Route("/events", runs.events),
            Route("/receipt", runs.receipt),
            Route("/artifacts/{path:path}", runs.artifact),
        ],
    )
    app = Starlette(
        routes=[Route("/healthz", healthz), Route("/readyz", readyz), run],
        exception_handlers=dict.fromkeys(
            (problems.Problem, HTTPException, StoreError, Exception), problems.on_error
        ),
    )
    app.state.services = given
    return app
