"""Errors as application/problem+json (RFC 9457): what is wrong and what to change."""

import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from treadle_store.errors import StoreError, StoreUnavailable

logger = logging.getLogger(__name__)

RETRY_SECONDS = 2


class Problem(Exception):
    """An answer other than the one asked for. `reason` is one PascalCase word for programs."""

    def __init__(
        self, status: int, reason: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.headers = dict(headers or {})


def unavailable(reason: str, detail: str) -> Problem:
    """A 503 that is worth another try."""
    return Problem(503, reason, detail, {"Retry-After": str(RETRY_SECONDS)})


def respond(problem: Problem) -> Response:
    body = {
        "type": f"https://treadle.dev/problems/{problem.reason}",
        "title": problem.reason,
        "status": problem.status,
        "detail": problem.detail,
    }
    return JSONResponse(body, problem.status, headers=problem.headers, media_type="application/problem+json")


async def on_error(request: Request, error: Exception) -> Response:
    """Any exception of a handler in the words of HTTP; what only we should know stays in our log."""
    match error:
        case Problem():
            return respond(error)
        case HTTPException():
            return respond(_of_routing(request, error))
        case StoreUnavailable():
            logger.warning("store unavailable", extra={"error": str(error)})
            return respond(
                unavailable("StoreUnavailable", "the store does not answer at the moment: try again")
            )
        case StoreError():
            logger.error("store refused", extra={"error": str(error)})
            return respond(Problem(500, type(error).__name__, "the store refused: see the gateway's log"))
        case _:
            logger.error("unhandled error", exc_info=error, extra={"path": request.url.path})
            return respond(Problem(500, "InternalError", "the gateway failed: see its log"))


def _of_routing(request: Request, error: HTTPException) -> Problem:
    match error.status_code:
        case 404:
            where = f"there is nothing at {request.url.path}"
            return Problem(404, "NoSuchPath", f"{where}: paths start with /ns/<namespace>/v1/runs/<run>/")
        case 405:
            return Problem(
                405, "MethodNotAllowed", f"{request.method} is not possible here: use GET", error.headers
            )
        case status:
            return Problem(status, "HTTPError", error.detail, error.headers)
