"""How two writes of one channel become one value. Pure, deterministic, indifferent to batching.

Indifferent to batching: folding two batches one after the other gives what folding their concatenation
gives, so that parallel tasks, retries and a later delta mode cannot change a thread's state.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar
from uuid import uuid4

from langchain_core.messages import (
    AnyMessage,
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    convert_to_messages,
    message_chunk_to_message,
)

_Value = TypeVar("_Value")

REMOVE_ALL: Final = "__remove_all__"
"""The id of a RemoveMessage that empties the history (LangGraph's own marker)."""


def merge_messages(left: Any, right: Any) -> list[AnyMessage]:
    """Append; the same id replaces in place; a remove marker deletes by id; "remove all" empties.

    Raises ValueError for a null side and for a removal of an id that is not there.
    """
    if left is None or right is None:
        side = "the state" if left is None else "the update"
        raise ValueError(f"messages: {side} is null; an empty list says that there is nothing")
    merged: list[AnyMessage] = [_whole(message) for message in _as_messages(left)]
    places = {message.id: place for place, message in enumerate(merged)}
    for message in _as_messages(right):
        if isinstance(message, RemoveMessage):
            if message.id == REMOVE_ALL:
                merged, places = [], {}
                continue
            if message.id not in places:
                raise ValueError(f"messages: no message {message.id!r} to remove")
            merged.pop(places[message.id])
            places = {kept.id: place for place, kept in enumerate(merged)}
        elif message.id in places:
            merged[places[message.id]] = _whole(message)
        else:
            places[message.id] = len(merged)
            merged.append(_whole(message))
    return merged


def union(left: Sequence[str] | None, right: Sequence[str] | None) -> list[str]:
    """Ordered union: first seen, first kept, no duplicates. None changes nothing."""
    return list(dict.fromkeys((*(left or ()), *(right or ()))))


def replace_unless_none(left: _Value | None, right: _Value | None) -> _Value | None:
    """None keeps; anything else, `[]` included, replaces."""
    return left if right is None else right


def merge_presented(left: dict[str, Any] | None, right: dict[str, Any] | None) -> dict[str, Any]:
    """Files presented by one run: `{run, paths}`. Another run's value replaces, the same run's unions."""
    if not right:
        return left or {}
    if not left or left.get("run") != right.get("run"):
        return {"run": right.get("run"), "paths": union((), right.get("paths"))}
    return {"run": left["run"], "paths": union(left.get("paths"), right.get("paths"))}


def _as_messages(value: Any) -> list[AnyMessage]:
    items = value if isinstance(value, list) else [value]
    converted = [item if isinstance(item, BaseMessage) else convert_to_messages([item])[0] for item in items]
    for message in converted:
        if message.id is None:
            message.id = str(uuid4())
    # LangChain declares plain BaseMessages where it makes members of AnyMessage.
    return converted  # type: ignore[return-value]


def _whole(message: AnyMessage) -> AnyMessage:
    return message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message  # type: ignore[return-value]
