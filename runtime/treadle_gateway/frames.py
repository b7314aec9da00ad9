"""The frames of a stream as server-sent events. Every one carries an id from which a client may go on."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from sse_starlette import ServerSentEvent

from treadle_api.records import Receipt, StoredEvent
from treadle_store.run_views import RunView
from treadle_store.streams import Position

from .cursor import Cursor

RESERVED: Final = frozenset({"metadata", "gap", "reset", "end", "error"})
"""Events that only the gateway may speak: an agent that logs or publishes one is quoted as `agent.<type>`."""

_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/|:-]{0,127}", re.ASCII)


def metadata(run: RunView, at: Cursor) -> ServerSentEvent:
    """First frame, and again for each further attempt: what comes after it is that attempt's output."""
    return _frame(
        "metadata",
        at,
        {
            "run_id": run.run_id,
            "run": run.name,
            "attempt": run.attempt,
            "status": run.status,
            "head": f"{run.log}.{run.head_seq}-0",
        },
    )


def committed(event: StoredEvent, log: str) -> ServerSentEvent:
    """An event of the log; the data is its payload."""
    return agent_frame(event.type, Cursor(log, event.seq, 0), event.payload)


def agent_frame(type: str, at: Cursor, data: Mapping[str, Any]) -> ServerSentEvent:
    """A frame that the agent spoke."""
    return _frame(type if _TYPE.fullmatch(type) and type not in RESERVED else f"agent.{type}"[:128], at, data)


def gap(at: Cursor, *, after: Cursor, before: Position | None, reason: str) -> ServerSentEvent:
    """Deltas between two positions are missing; committed events are complete. `before` None: until now, or
    until the wire is back. `at` is where the stream goes on."""
    until = str(Cursor(at.log, *before)) if before else None
    return _frame("gap", at, {"reason": reason, "after": str(after), "before": until})


def lost(at: Cursor, data: Mapping[str, Any]) -> ServerSentEvent:
    """The publisher's own notice of deltas that did not reach the wire."""
    count = data.get("lost")
    return _frame("gap", at, {"reason": "not_published", "lost": count if isinstance(count, int) else None})


def reset(at: Cursor, requested: Cursor | None, reason: str) -> ServerSentEvent:
    """Forget what was received so far: the log from its beginning follows."""
    return _frame("reset", at, {"reason": reason, "requested": str(requested) if requested else None})


def end(at: Cursor, run: RunView, receipt: Receipt) -> ServerSentEvent:
    """The run's outcome, read from its receipt. Nothing else ends a stream for good."""
    told = {key: receipt.payload.get(key) for key in ("reason", "message", "summary")}
    return _frame(
        "end",
        at,
        {
            "run_id": run.run_id,
            "status": run.status,
            "outcome": receipt.payload.get("outcome", run.status),
            "receipt": receipt.digest,
            **told,
        },
    )


def failure(at: Cursor, reason: str, detail: str) -> ServerSentEvent:
    """The stream cannot go on; the run is not affected."""
    return _frame("error", at, {"error": reason, "message": detail})


def heartbeat(at: Cursor) -> ServerSentEvent:
    return ServerSentEvent(comment=f"heartbeat {at}")


def _frame(event: str, at: Cursor, data: Mapping[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(
        json.dumps(data, ensure_ascii=False, separators=(",", ":")), event=event, id=str(at)
    )
