"""What can go wrong with the API server, said once.

    ClusterError
    ├── NotFound        the object is not there
    ├── AlreadyExists   a create met an object of that name
    ├── Conflict        a precondition (resourceVersion, uid, JSON-patch test) no longer holds
    ├── Rejected        the server understood and refuses: it will not get better by repeating
    └── Unavailable     unreachable, overloaded, token in rotation: repeat later

Every exception of the client and of aiohttp below it maps to exactly one of these (a test checks that none
is forgotten).
"""

import json
from collections.abc import Mapping
from typing import Any

import aiohttp


class ClusterError(Exception):
    """Base: a call to the API server did not do what was asked."""


class NotFound(ClusterError):
    pass


class AlreadyExists(ClusterError):
    pass


class Conflict(ClusterError):
    pass


class Rejected(ClusterError):
    """`status` is the HTTP code, `reason` the machine word of the server's Status object."""

    def __init__(self, message: str, *, status: int, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class Unavailable(ClusterError):
    """`retry_after` in seconds where the server named one."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


_TRANSIENT_CODES = frozenset({401, 408, 410, 425, 429})
"""401: a bound token in rotation; 410: a list's continue token ran out."""


def from_response(status: int, body: bytes, headers: Mapping[str, str]) -> ClusterError:
    """The error behind an HTTP answer of 300 or above."""
    answer = _status_object(body)
    reason = str(answer.get("reason") or "")
    message = str(answer.get("message") or f"the API server answered {status}")
    if status == 404:
        return NotFound(message)
    if status == 409:
        return AlreadyExists(message) if reason == "AlreadyExists" else Conflict(message)
    if status in _TRANSIENT_CODES or status >= 500:
        return Unavailable(message, retry_after=_retry_after(answer, headers))
    return Rejected(message, status=status, reason=reason)


def from_exception(error: Exception) -> ClusterError:
    """The error behind an exception raised while a request was under way."""
    if isinstance(error, aiohttp.InvalidURL):
        return Rejected(f"not a URL: {error}", status=0, reason="InvalidURL")
    return Unavailable(f"the API server could not be reached: {type(error).__name__}: {error}")


TRANSPORT_ERRORS = (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError, UnicodeDecodeError)
"""What a request may raise besides ClusterError; anything else is a programming error and is not hidden."""


def retry_after(error: Exception) -> float | None:
    """Seconds the server asked to wait, for the work queue."""
    return error.retry_after if isinstance(error, Unavailable) else None


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _retry_after(answer: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    details = answer.get("details")
    named = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    value = named if named is not None else headers.get("Retry-After")
    try:
        return min(float(value), 300.0) if value is not None else None
    except (TypeError, ValueError):
        return None
