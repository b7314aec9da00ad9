"""LangGraph's serializer, made to refuse what it would let through quietly.

The library turns a type that is not allowed into a plain dict and goes on; a run that continued from that
would be wrong without anybody noticing. Here every such value is an error. It also still reads a "json"
format that could run code (CVE-2025-64439): only the tags that this class writes are read back.
"""

import functools
import gc
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde import _msgpack
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from treadle_runtime.stored_messages import UNPACK_OPTIONS, revive_message

READABLE_TAGS: Final = frozenset({"msgpack", "null", "bytes"})
"""Type tags of stored values. `empty` (a channel without a value) carries nothing and is never decoded."""

_PYDANTIC_CODE: Final = 5
_NUMPY_CODE: Final = 6
_DELTA_SNAPSHOT_CODE: Final = 7
_PLAIN: Final = frozenset({dict, list, tuple, str, int, float, bool, bytes, type(None)})

_refused = threading.local()


class UnreadableValue(Exception):
    """A stored value cannot be turned back into what was stored. Waiting does not help."""


class NotStrict(RuntimeError):
    """The process was started without LANGGRAPH_STRICT_MSGPACK=true, which is read once, at import."""


class StrictSerializer(JsonPlusSerializer):
    """msgpack with the built-in safe types, those of the graph's schemas, and those given as `extra`.

    Raises NotStrict when constructed without strict mode, UnreadableValue when a stored value needs a type
    that is not allowed, cannot be rebuilt, or carries a foreign type tag.
    """

    def __init__(self, extra: Iterable[tuple[str, str]] = ()) -> None:
        if not _msgpack.STRICT_MSGPACK_ENABLED:
            raise NotStrict(
                "set LANGGRAPH_STRICT_MSGPACK=true in the environment before Python starts: "
                "without it a checkpoint could name any Python callable"
            )
        _listen_once()
        allowed = tuple(extra)
        if allowed:
            super().__init__(allowed_msgpack_modules=allowed)
        else:
            super().__init__()
        self._unpack_ext_hook = _noticing(self._unpack_ext_hook)

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> JsonPlusSerializer:
        clone = super().with_msgpack_allowlist(extra_allowlist)
        if clone is not self:
            clone._unpack_ext_hook = _noticing(clone._unpack_ext_hook)
        return clone

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """`(tag, data)`; a bytearray is stored as bytes, so that every written tag can be read."""
        return super().dumps_typed(bytes(obj) if isinstance(obj, bytearray) else obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        tag, _ = data
        if tag not in READABLE_TAGS:
            raise UnreadableValue(f"a stored value carries the type tag {tag!r}, which is never read back")
        names: list[str] = []
        _refused.names = names
        # Nothing of a value is garbage before the value is whole. To look for some meanwhile, in all that the
        # process holds, costs up to half of the time that a long conversation takes.
        collects = gc.isenabled()
        gc.disable()
        try:
            value = super().loads_typed(data)
        finally:
            if collects:
                gc.enable()
            _refused.names = None
        if names:
            raise UnreadableValue(
                f"a stored value holds {', '.join(sorted(set(names)))}: "
                "declare the type in the graph's state schema, or keep state to messages, dicts and builtins"
            )
        return value


def _noticing(hook: Callable[[int, bytes], Any]) -> Callable[[int, bytes], Any]:
    """`hook`, noting a value that came back as its bare content instead of an object of its type.

    Messages, also those of a delta snapshot, are revived here as long as they look as usual.
    """

    @functools.wraps(hook)
    def wrapped(code: int, data: bytes) -> Any:
        if code == _PYDANTIC_CODE and (message := revive_message(data, wrapped)) is not None:
            return message
        if code == _DELTA_SNAPSHOT_CODE:
            return _DeltaSnapshot(ormsgpack.unpackb(data, ext_hook=wrapped, option=UNPACK_OPTIONS))
        value = hook(code, data)
        if code != _NUMPY_CODE and type(value) in _PLAIN:
            _note("an object that cannot be rebuilt")
        return value

    return wrapped


def _note(what: str) -> None:
    names = getattr(_refused, "names", None)
    if names is not None:
        names.append(what)


def _on_serde_event(event: SerdeEvent) -> None:
    if event["kind"] in ("msgpack_blocked", "msgpack_method_blocked"):
        _note(f"{event['module']}.{event['name']}")


@functools.cache
def _listen_once() -> None:
    # The nested hook reports blocked types only to listeners; there is no other way to see one that sits
    # inside a message or a snapshot.
    register_serde_event_listener(_on_serde_event)
