"""What is durable about one run: its events, its receipt, its artifacts."""

import base64
import json
import re
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from treadle_api.records import ManifestEntry, StoredEvent
from treadle_store.run_views import RunView

from .problems import Problem
from .services import permitted_run, services
from .slots import Held

PAGE_DEFAULT: Final = 100
PAGE_LIMIT: Final = 500
PAGE_BYTES: Final = 4 * 1024 * 1024
"""A page of events ends early once it is this large."""

_CHUNK = 50
_MEDIA_TYPE = re.compile(
    r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}(; ?charset=[\w-]{1,40})?"
)


async def events(request: Request) -> Response:
    """A page of the run's events behind `after_seq`, oldest first; `next` is the next page's `after_seq`."""
    run = await permitted_run(request)
    after = _number(request, "after_seq", default=0, low=0, high=2**53 - 1)
    limit = _number(request, "limit", default=PAGE_DEFAULT, low=1, high=PAGE_LIMIT)
    types = [_text("type", value) for value in request.query_params.getlist("type")] or None
    task = request.query_params.get("task_id")
    page: list[dict[str, Any]] = []
    size, more = 0, True
    while more and len(page) < limit and size < PAGE_BYTES:
        want = min(_CHUNK, limit - len(page))
        rows = await services(request).records.events(
            run, after_seq=after, limit=want, types=types, task_id=_text("task_id", task) if task else None
        )
        for row in rows:
            page.append(_event(row))
            size += len(json.dumps(row.payload))
            after = row.seq
            if size >= PAGE_BYTES:
                break
        more = len(rows) == want
    return JSONResponse(
        {
            "run_id": run.run_id,
            "log": run.log,
            "head_seq": run.head_seq,
            "events": page,
            "next": after if more else None,
        }
    )


async def receipt(request: Request) -> Response:
    """The receipt: proof of how the run ended."""
    run = await permitted_run(request)
    found = await services(request).records.receipt(run.run_id)
    if found is None:
        detail = f"run {run.name} has not ended (its status is {run.status}): follow its stream"
        raise Problem(404, "NotSettled", detail)
    return JSONResponse(
        {
            "run_id": run.run_id,
            "run": run.name,
            "namespace": run.namespace,
            "token": found.token,
            "digest": found.digest,
            "created_at": found.created_at.isoformat(),
            "payload": found.payload,
        }
    )


async def artifact(request: Request) -> Held:
    """The bytes of one file that the receipt lists."""
    run = await permitted_run(request)
    path = _text("path", request.path_params["path"])
    downloads = services(request).downloads
    downloads.take()
    try:
        return Held(downloads, await _artifact(request, run, path))
    except BaseException:
        downloads.free()
        raise


async def _artifact(request: Request, run: RunView, path: str) -> Response:
    found = await services(request).records.artifact(run.run_id, path)
    if found is None:
        detail = f"run {run.name} delivered no file {path!r}: its receipt lists what there is"
        raise Problem(404, "ArtifactNotFound", detail)
    entry, data = found
    headers = _headers(entry)
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    known = _MEDIA_TYPE.fullmatch(entry.media_type)
    headers["content-type"] = entry.media_type if known else "application/octet-stream"
    return Response(data, headers=headers)


def _headers(entry: ManifestEntry) -> dict[str, str]:
    """Agents choose names, types and bytes: nothing of it may run or be guessed in a browser."""
    digest = base64.b64encode(bytes.fromhex(entry.sha256)).decode()
    name = quote(PurePosixPath(entry.path).name, safe="")
    return {
        "etag": f'"{entry.sha256}"',
        "digest": f"sha-256={digest}",
        "repr-digest": f"sha-256=:{digest}:",
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "sandbox; default-src 'none'",
        "x-content-type-options": "nosniff",
        "cache-control": "private, no-cache",
    }


def _event(row: StoredEvent) -> dict[str, Any]:
    return {
        "seq": row.seq,
        "event_id": str(row.event_id),
        "type": row.type,
        "task_id": row.task_id,
        "token": row.token,
        "created_at": row.created_at.isoformat(),
        "payload": row.payload,
    }


def _number(request: Request, name: str, *, default: int, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,16}", text, re.ASCII) or not low <= int(text) <= high:
        raise Problem(400, "BadParameter", f"{name} must be a whole number from {low} to {high}")
    return int(text)


def _text(name: str, value: str) -> str:
    """Postgres keeps no NUL in texts, so nothing can be found under one."""
    if "\0" in value or len(value) > 4096:
        raise Problem(400, "BadParameter", f"{name} must be at most 4096 characters without NUL")
    return value
