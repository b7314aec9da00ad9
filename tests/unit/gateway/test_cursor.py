"""Cursors: what is accepted, and what comes next to what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle_gateway.cursor import ALL_DELTAS, BadCursor, Cursor, before

LOG = "1i1"
POSITIONS = st.tuples(st.integers(0, ALL_DELTAS), st.integers(0, ALL_DELTAS))


@given(st.text(max_size=60) | st.from_regex(r"[0-9]{0,2}i?[0-9]{0,2}[.-][0-9]{0,18}-[0-9]{0,18}"))
def test_any_text_is_a_cursor_or_none_or_refused(text: str) -> None:
    try:
        cursor = Cursor.parse(text)
    except BadCursor:
        return
    assert cursor is None or Cursor.parse(str(cursor)) == cursor


def test_a_refusal_shows_what_a_cursor_looks_like() -> None:
    with pytest.raises(BadCursor, match=r"1i1\.57-3"):
        Cursor.parse("57")


@given(POSITIONS)
def test_a_cursor_that_was_written_is_read_again(position: tuple[int, int]) -> None:
    cursor = Cursor("12i3", *position)
    assert Cursor.parse(f" {cursor} ") == cursor
    assert cursor.position == position


@pytest.mark.parametrize("text", ["", "-", "-1", " -1 "])
def test_clients_without_a_cursor_begin_at_the_start(text: str) -> None:
    assert Cursor.parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "57",
        "1i1.57",
        "1i1.57-",
        "1i1.-1-0",
        "1i1.1-1-1",
        "\uff11i1.1-1",
        f"1i1.{2**53}-0",
        "i.1-1",
        "1i1.1-1\n2",
    ],
)
def test_what_no_frame_carries_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        Cursor.parse(text)


@given(POSITIONS.filter(lambda entry: entry > (0, 0)))
def test_what_comes_before_an_entry_is_followed_by_it(entry: tuple[int, int]) -> None:
    cursor = before(LOG, entry)
    assert cursor.position < entry
    assert cursor.followed_by(entry)


@given(POSITIONS, POSITIONS)
def test_nothing_at_or_before_a_cursor_follows_it(at: tuple[int, int], entry: tuple[int, int]) -> None:
    if entry <= at:
        assert not Cursor(LOG, *at).followed_by(entry)


def test_behind_an_event_there_may_be_deltas_before_the_next_event() -> None:
    assert Cursor(LOG, 57, 3).followed_by((57, 4))
    assert not Cursor(LOG, 57, 3).followed_by((58, 0))
    assert Cursor(LOG, 57, ALL_DELTAS).followed_by((58, 0))
    assert not Cursor(LOG, 57, ALL_DELTAS).followed_by((59, 0))
