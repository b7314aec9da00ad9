"""Checkpoint ids and channel versions: what a new attempt must make larger, and what must never repeat."""

import secrets
import uuid
from typing import Any, Final

from langgraph.checkpoint.base import id as uuid6_clock

# The one module variable in which the library keeps the last timestamp it gave out.
_CLOCK: Final = "_last_v6_timestamp"


def seed_checkpoint_clock(newest: str) -> None:
    """Make every checkpoint id of this process from now on greater than `newest`.

    Ids are UUIDv6 of the wall clock, and LangGraph compares them when it replays subgraphs: a successor whose
    clock is behind its predecessor's would make ids that look older. The library keeps the last timestamp in
    one module variable, which this raises; an id of another shape is left out of account.
    """
    try:
        parsed = uuid.UUID(newest)
    except ValueError:
        return
    if parsed.version != 6:
        return
    timestamp = (parsed.int >> 80) << 12 | (parsed.int >> 64) & 0xFFF
    last: Any = getattr(uuid6_clock, _CLOCK)
    setattr(uuid6_clock, _CLOCK, timestamp if last is None else max(last, timestamp))


def next_version(current: str | None) -> str:
    """`<count>.<random>`: the channel version after `current`, ordered as text.

    Blobs are keyed by version without the checkpoint's id, so two branches of one parent must never choose
    the same one; nor from `random`, which a node may have seeded.
    """
    count = 0 if current is None else int(str(current).split(".", 1)[0])
    return f"{count + 1:032d}.{secrets.token_hex(8)}"
