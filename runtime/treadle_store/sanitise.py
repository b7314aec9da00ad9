"""Makes any JSON-like value one that jsonb stores and every client reads back.

Postgres refuses NUL and lone surrogates; a hostile or careless tool result must not cost the batch it stands
in. What is changed is changed visibly, and cleaning twice is cleaning once.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from treadle_api.contract import EVENT_BYTES_LIMIT
from treadle_api.records import Json
from treadle_store.errors import StoreRejected
from treadle_store.pool import encode_json

DEPTH_LIMIT: Final = 64
"""Levels of nesting; what lies deeper becomes one string that says so."""
_INTEGER_BITS: Final = 63
_LOST: Final = "\N{REPLACEMENT CHARACTER}"
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_TOO_DEEP: Final = "(nested too deeply)"
# A payload over its limit loses the tails of its longest strings first, then everything but its size.
_CUTS: Final = (65_536, 16_384, 4_096, 1_024, 256)


def clean(value: Any) -> Any:
    """`value` with NUL removed, lone surrogates replaced, numbers that no client can hold as strings.

    Raises StoreRejected for what is not JSON at all (a date, bytes, an object).
    """
    return _clean(value, DEPTH_LIMIT, None)


def clean_payload(payload: Mapping[str, Any], limit: int = EVENT_BYTES_LIMIT) -> Json:
    """A clean JSON object of at most `limit` bytes; what does not fit is cut and says so."""
    cleaned: Json = _clean(payload, DEPTH_LIMIT, None)
    size = _size(cleaned)
    if size <= limit:
        return cleaned
    for cut in _CUTS:
        shorter: Json = _clean(payload, DEPTH_LIMIT, cut)
        if _size(shorter) <= limit:
            return shorter
    return {"cut": {"bytes": size}}


def _size(value: Json) -> int:
    return len(encode_json(value).encode())


def _clean(value: Any, depth: int, cut: int | None) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return _text(value, cut)
        case int():
            return int(value) if value.bit_length() <= _INTEGER_BITS else _integer(value)
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case Mapping() | list() | tuple() if depth == 0:
            return _TOO_DEEP
        case Mapping():
            return {_key(key, cut): _clean(item, depth - 1, cut) for key, item in value.items()}
        case list() | tuple():
            return [_clean(item, depth - 1, cut) for item in value]
        case _:
            raise StoreRejected(
                "NotJSON", f"{type(value).__name__} is not JSON: convert it to text or a number"
            )


def _text(text: str, cut: int | None) -> str:
    text = _SURROGATES.sub(_LOST, text.replace("\x00", ""))
    if cut is not None and len(text) > cut:
        return f"{text[:cut]}… ({len(text) - cut} more characters)"
    return text


def _key(key: Any, cut: int | None) -> str:
    if isinstance(key, str | int | float | bool | None):
        return _text(key if isinstance(key, str) else str(key), cut)
    raise StoreRejected("NotJSON", f"{type(key).__name__} is not a key of a JSON object: convert it to text")


def _integer(value: int) -> str:
    # int -> str is quadratic, and refused by Python beyond 4 300 digits.
    return str(value) if value.bit_length() <= 4096 else f"(integer of {value.bit_length()} bits)"
