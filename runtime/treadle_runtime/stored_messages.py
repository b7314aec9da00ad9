"""Messages out of their stored fields, without the way through their constructors.

Reading a long conversation spends most of its time there, and for nothing: the fields come from a message
that was validated when it was made. Where each field already is what validation would make of it, the message
is put together at once, as unpickling does. Everything else - a message of another look, a class whose
fields or validators are not those known here - takes LangGraph's own way, which also decides what becomes
of a message that is not valid.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from pydantic import TypeAdapter

UNPACK_OPTIONS: Final = ormsgpack.OPT_NON_STR_KEYS
"""What LangGraph's serializer unpacks with."""

_Fields = dict[str, Any]

_COMMON: Final = ("content", "additional_kwargs", "response_metadata", "type", "name", "id")

_calls: Final = TypeAdapter(list[ToolCall]).validator.validate_python
_usage: Final = TypeAdapter(UsageMetadata | None, config=AIMessage.model_config).validator.validate_python
_set: Final = object.__setattr__


class _Shape(NamedTuple):
    cls: type[BaseMessage]
    type: str
    order: tuple[str, ...]
    names: set[str]
    valid: Callable[[_Fields], bool]


def _nothing_more(_fields: _Fields) -> bool:
    return True


def _valid_of_ai(fields: _Fields) -> bool:
    calls = fields["tool_calls"]
    if fields["invalid_tool_calls"] != []:
        return False
    if calls:
        # Validation adds a type where there is none, and keeps nothing but the fields of a call.
        fields["tool_calls"] = valid = _calls(calls)
        if valid != calls or not all("type" in call for call in calls):
            return False
    elif calls != [] or fields["additional_kwargs"].get("tool_calls"):
        return False  # calls in a provider's form, which validation parses
    if (usage := fields["usage_metadata"]) is not None:
        fields["usage_metadata"] = _usage(usage)
    return True


def _valid_of_tool(fields: _Fields) -> bool:
    return type(fields["tool_call_id"]) is str and fields["status"] in ("success", "error")


def _shapes() -> dict[tuple[str, str], _Shape]:
    """(module, class name) -> shape, for the classes that validate as they did when this was written."""
    known: list[tuple[type[BaseMessage], str, tuple[str, ...], set[str], Callable[[_Fields], bool]]] = [
        (HumanMessage, "human", _COMMON, set(), _nothing_more),
        (SystemMessage, "system", _COMMON, set(), _nothing_more),
        (
            AIMessage,
            "ai",
            (*_COMMON, "tool_calls", "invalid_tool_calls", "usage_metadata"),
            {"_backwards_compat_tool_calls"},
            _valid_of_ai,
        ),
        (
            ToolMessage,
            "tool",
            (*_COMMON, "tool_call_id", "artifact", "status"),
            {"coerce_args"},
            _valid_of_tool,
        ),
    ]
    shapes = {}
    for cls, kind, order, validators, valid in known:
        found = cls.__pydantic_decorators__
        if (
            (cls.__module__, cls.__name__) in SAFE_MSGPACK_TYPES
            and tuple(cls.model_fields) == order
            and set(found.model_validators) == validators
            and not found.field_validators
            and not cls.__private_attributes__
        ):
            shapes[cls.__module__, cls.__name__] = _Shape(cls, kind, order, set(order), valid)
    return shapes


SHAPES: Final = _shapes()


def revive_message(data: bytes, ext_hook: Callable[[int, bytes], Any]) -> BaseMessage | None:
    """The message in the payload of a pydantic extension type; None where it must go LangGraph's own way.

    `ext_hook` is for what stands inside of the message.
    """
    try:
        module, name, fields, _ = ormsgpack.unpackb(data, ext_hook=ext_hook, option=UNPACK_OPTIONS)
        cls, kind, order, names, valid = SHAPES[module, name]
        if (*fields,) != order:
            return None
        nickname, id_ = fields["name"], fields["id"]
        if not (
            type(fields["content"]) is str
            and type(fields["additional_kwargs"]) is dict
            and type(fields["response_metadata"]) is dict
            and fields["type"] == kind
            and (nickname is None or type(nickname) is str)
            and (id_ is None or type(id_) is str)
            and valid(fields)
        ):
            return None
    except (ValueError, TypeError, KeyError):  # not packed, not three parts, no message, not its fields
        return None
    message = cls.__new__(cls)
    _set(message, "__dict__", fields)
    _set(message, "__pydantic_fields_set__", names.copy())
    _set(message, "__pydantic_extra__", {})
    _set(message, "__pydantic_private__", None)
    return message
