"""Cleaning: whatever an agent's tools return becomes JSON that Postgres stores and clients read back."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle_store.errors import StoreRejected
from treadle_store.pool import encode_json
from treadle_store.sanitise import DEPTH_LIMIT, clean, clean_payload

# Every code point: `st.text()` alone leaves out surrogates.
_TEXT = st.text(st.characters(codec=None, categories=None) | st.sampled_from("\x00\ud800\udfff\u2028"))
_SCALARS = st.none() | st.booleans() | st.integers(-(10**300), 10**300) | st.floats() | _TEXT
JSON = st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner), max_leaves=30)
OBJECTS = st.dictionaries(_TEXT, JSON, max_size=5)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in (key, *_leaves(item))]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


@given(JSON)
def test_what_is_clean_is_json_without_nul_surrogates_or_huge_numbers(value: Any) -> None:
    cleaned = clean(value)

    assert json.loads(encode_json(cleaned)) == cleaned
    encode_json(cleaned).encode("utf-8")
    for leaf in _leaves(cleaned):
        if isinstance(leaf, str):
            assert "\x00" not in leaf
            assert not any("\ud800" <= character <= "\udfff" for character in leaf)
        if isinstance(leaf, int):
            assert abs(leaf) < 2**63
        if isinstance(leaf, float):
            assert math.isfinite(leaf)


@given(JSON)
def test_cleaning_twice_is_cleaning_once(value: Any) -> None:
    assert clean(clean(value)) == clean(value)


@given(st.recursive(st.integers(-(2**63) + 1, 2**63 - 1) | st.text("abc é語"), st.lists))
def test_what_was_clean_stays_as_it_was(value: Any) -> None:
    assert clean(value) == value


@given(OBJECTS, st.integers(60, 2000))
def test_a_payload_never_exceeds_its_limit(payload: dict[str, Any], limit: int) -> None:
    assert len(encode_json(clean_payload(payload, limit)).encode()) <= limit


def test_a_long_text_keeps_its_beginning_and_says_what_is_missing() -> None:
    cut = clean_payload({"text": "a" * 300_000, "n": 1}, 100_000)

    assert cut["n"] == 1
    assert cut["text"].startswith("a" * 65_536)
    assert cut["text"].endswith("(234464 more characters)")


def test_a_payload_that_no_cut_makes_small_says_how_large_it_was() -> None:
    payload = {str(n): n for n in range(1000)}

    assert clean_payload(payload, 1000) == {"cut": {"bytes": len(encode_json(payload))}}


def test_an_integer_that_python_itself_will_not_print_is_described() -> None:
    assert clean(10**5000) == "(integer of 16610 bits)"


def test_deep_nesting_ends_in_a_sentence() -> None:
    value: Any = "bottom"
    for _ in range(10_000):
        value = [value]

    cleaned = clean(value)

    for _ in range(DEPTH_LIMIT):
        cleaned = cleaned[0]
    assert cleaned == "(nested too deeply)"


@pytest.mark.parametrize("value", [datetime.now(UTC), b"bytes", object(), {("a", "b"): 1}, {1, 2}])
def test_what_is_no_json_is_named(value: Any) -> None:
    with pytest.raises(StoreRejected, match=r"NotJSON: .* convert it to text"):
        clean({"x": value})
