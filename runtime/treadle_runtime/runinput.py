"""From the stored input of a run to what its graph is given, and to how the log tells it. Pure."""

import json
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from treadle_api.records import Event, Json, RunUID
from treadle_runtime.events import make_event

_ROLES: dict[str, type[BaseMessage]] = {"user": HumanMessage, "assistant": AIMessage, "system": SystemMessage}


class InputError(ValueError):
    """The stored input is none that a graph can be given; the message says why."""


def graph_input(stored: Json, run_id: RunUID) -> dict[str, Any]:
    """`{"messages": [...]}` for `messages` and `text`, the object itself for `json`.

    Message ids follow from the run, so that a repeated start replaces them and never doubles them.
    """
    if "text" in stored:
        return {"messages": [HumanMessage(str(stored["text"]), id=f"{run_id}-0")]}
    if "messages" in stored:
        return {
            "messages": [_message(item, f"{run_id}-{place}") for place, item in enumerate(stored["messages"])]
        }
    if "json" in stored:
        return _object(stored["json"])
    raise InputError("the run's input has none of messages, text and json")


def input_event(given: dict[str, Any]) -> Event:
    """What the log tells when the input becomes part of the thread; its messages tell themselves."""
    messages = given.get("messages")
    count = len(messages) if isinstance(messages, list) else 0
    return make_event("run.input", {"messages": count, "channels": sorted(given)})


def _message(item: Any, identity: str) -> BaseMessage:
    try:
        kind = _ROLES[item["role"]]
        return kind(content=item["content"], id=identity)
    except (KeyError, TypeError) as error:
        raise InputError(
            f"an input message needs a role of {', '.join(_ROLES)} and content: {error}"
        ) from error


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InputError(f"input.json is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError("input.json must be a JSON object: the graph's channels by name")
    return value
