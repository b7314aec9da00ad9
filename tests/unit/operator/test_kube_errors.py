"""Every way in which a call to the API server can fail has one name."""

import inspect
import json

import aiohttp
import pytest
from aiohttp import client_exceptions

from treadle_operator import kube_errors
from treadle_operator.kube_errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    NotFound,
    Rejected,
    Unavailable,
    from_exception,
    from_response,
)


def status(reason: str, message: str = "it says why", **details: object) -> bytes:
    return json.dumps({"kind": "Status", "reason": reason, "message": message, "details": details}).encode()


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (404, status("NotFound"), NotFound),
        (409, status("AlreadyExists"), AlreadyExists),
        (409, status("Conflict"), Conflict),
        (400, status("BadRequest"), Rejected),
        (403, status("Forbidden"), Rejected),
        (405, status("MethodNotAllowed"), Rejected),
        (413, b"too large", Rejected),
        (415, status("UnsupportedMediaType"), Rejected),
        (422, status("Invalid"), Rejected),
        (401, status("Unauthorized"), Unavailable),
        (410, status("Expired"), Unavailable),
        (429, status("TooManyRequests"), Unavailable),
        (500, status("InternalError"), Unavailable),
        (503, b"no Status object at all", Unavailable),
        (504, status("Timeout"), Unavailable),
    ],
)
def test_each_answer_of_the_server_has_one_meaning(
    code: int, body: bytes, expected: type[ClusterError]
) -> None:
    error = from_response(code, body, {})
    assert type(error) is expected
    assert str(error)


def test_the_servers_own_words_are_kept() -> None:
    error = from_response(422, status("Invalid", "spec.containers: Required value"), {})
    assert isinstance(error, Rejected)
    assert (error.status, error.reason, error.message) == (422, "Invalid", "spec.containers: Required value")


@pytest.mark.parametrize(
    ("body", "headers", "seconds"),
    [
        (status("TooManyRequests", retryAfterSeconds=3), {}, 3.0),
        (b"", {"Retry-After": "7"}, 7.0),
        (b"", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        (b"", {"Retry-After": "999999"}, 300.0),
        (b"", {}, None),
    ],
)
def test_the_wait_the_server_asks_for_reaches_the_queue(
    body: bytes, headers: dict[str, str], seconds: float | None
) -> None:
    assert kube_errors.retry_after(from_response(429, body, headers)) == seconds


def test_every_exception_of_the_http_client_is_translated() -> None:
    classes = [
        cls
        for _, cls in inspect.getmembers(client_exceptions, inspect.isclass)
        if issubclass(cls, Exception) and cls.__module__ == client_exceptions.__name__
        if not cls.__name__.startswith("WS")  # we open no web socket
    ]
    assert len(classes) > 15
    for cls in classes:
        assert issubclass(cls, kube_errors.TRANSPORT_ERRORS), cls
        # Each has fields of its own to be made and printed with.
        silent: dict[str, object] = {"__init__": lambda self: None, "__str__": lambda self: "it failed"}
        made: type[Exception] = type(cls.__name__, (cls,), silent)
        error = from_exception(made())
        assert isinstance(error, Rejected if issubclass(cls, aiohttp.InvalidURL) else Unavailable), cls


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), OSError("no route to host")])
def test_a_lost_connection_is_unavailable(error: Exception) -> None:
    assert isinstance(error, kube_errors.TRANSPORT_ERRORS)
    assert isinstance(from_exception(error), Unavailable)
