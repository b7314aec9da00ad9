"""The events of a run: their types, their bounded payloads, and what a message looks like in the log."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID, uuid4, uuid5

from langchain_core.messages import BaseMessage, RemoveMessage

from treadle_api.contract import EVENT_BYTES_LIMIT
from treadle_api.records import Event, Json, RunUID

_NAMES: Final = UUID("6f9b1f4e-5f0c-4d53-9a56-0d1f5a0b7f1e")
_TEXT_LIMIT: Final = 65_536
_ARGUMENT_LIMIT: Final = 4_096
_DEPTH_LIMIT: Final = 12
_ITEMS_LIMIT: Final = 1_000
_CUT: Final = "… [cut]"


def make_event(kind: str, payload: Mapping[str, Any], task_id: str | None = None) -> Event:
    """A new event with a bounded payload."""
    return Event(uuid4(), kind, bounded(payload), task_id)


def named_event(run_id: RunUID, kind: str, payload: Mapping[str, Any]) -> Event:
    """An event that happens once per run whatever the attempts: its id follows from the run and the kind."""
    return Event(uuid5(_NAMES, f"{run_id}/{kind}"), kind, bounded(payload))


def message_payload(message: BaseMessage) -> Json:
    """A message as the log tells it, enough to show it without the checkpoint."""
    payload: Json = {"id": message.id, "role": message.type, "content": message.content}
    if message.name:
        payload["name"] = message.name
    calls = getattr(message, "tool_calls", None)
    if calls:
        payload["tool_calls"] = [
            {"id": call["id"], "name": call["name"], "args": arguments(call["args"])} for call in calls
        ]
    if call_id := getattr(message, "tool_call_id", None):
        payload["tool_call_id"] = call_id
        payload["status"] = getattr(message, "status", "success")
    if usage := getattr(message, "usage_metadata", None):
        payload["usage"] = {name: usage.get(name, 0) for name in ("input_tokens", "output_tokens")}
    return payload


def told_by_writes(writes: Iterable[tuple[str, Any]], task_id: str) -> list[Event]:
    """The events that a task's writes are: messages, the plan, presented files."""
    events: list[Event] = []
    for channel, value in writes:
        if channel == "messages":
            for message in value if isinstance(value, list) else [value]:
                if isinstance(message, BaseMessage) and not isinstance(message, RemoveMessage):
                    if message.id is None:
                        # The reducer would give one later; the log and the state must agree on it.
                        message.id = str(uuid4())
                    events.append(make_event("message", message_payload(message), task_id))
        elif channel == "todos" and isinstance(value, list):
            events.append(make_event("todo", {"todos": value}, task_id))
        elif channel == "artifacts" and isinstance(value, list):
            events.append(make_event("artifact", {"paths": value}, task_id))
    return events


def arguments(values: Any) -> Any:
    """Arguments of a tool call with every long text cut: the log explains, the state keeps the bytes."""
    return _cut(values, _ARGUMENT_LIMIT, _DEPTH_LIMIT)


def bounded(payload: Mapping[str, Any]) -> Json:
    """`payload` as JSON values that the log takes: no NUL, nothing endless, at most 256 KiB."""
    cut: Json = _cut(payload, _TEXT_LIMIT, _DEPTH_LIMIT)
    if _size(cut) > EVENT_BYTES_LIMIT:
        cut = _cut(payload, _ARGUMENT_LIMIT, _DEPTH_LIMIT)
    if _size(cut) > EVENT_BYTES_LIMIT:
        cut = {name: value for name, value in cut.items() if _size(value) < _ARGUMENT_LIMIT}
        cut["cut"] = True
    return cut


def _size(value: Any) -> int:
    return len(json.dumps(value, default=str).encode())


def _cut(value: Any, limit: int, depth: int) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case str():
            clean = value.replace("\0", "").encode(errors="replace").decode()
            return clean if len(clean) <= limit else clean[:limit] + _CUT
        case Mapping() if depth:
            return {str(name)[:256]: _cut(item, limit, depth - 1) for name, item in value.items()}
        case list() | tuple() | set() if depth:
            items = [_cut(item, limit, depth - 1) for item in list(value)[:_ITEMS_LIMIT]]
            return items if len(value) <= _ITEMS_LIMIT else [*items, _CUT]
        case _:
            return _cut(str(value), limit, depth)
