"""Conditions after the Kubernetes API conventions.

The transition time moves only when the condition's status moves, whatever happens to reason and message;
a condition says something or is absent (02-api, "Conditions of a Run").
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from treadle_api.contract import MESSAGE_LIMIT

Condition = dict[str, Any]

_WORD = re.compile("[A-Z][A-Za-z0-9]{0,62}")

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


def stamp(at: datetime) -> str:
    """RFC 3339 in UTC, whole seconds, as the API server writes times."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def shorten(message: str, limit: int = MESSAGE_LIMIT) -> str:
    """`message` on one line within `limit` characters."""
    line = " ".join(message.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def word(said: object, otherwise: str) -> str:
    """A reason that an agent gave, if the CRD can take it: one CamelCase word of at most 63 characters."""
    return said if isinstance(said, str) and _WORD.fullmatch(said) else otherwise


def find(conditions: Iterable[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    return next((c for c in conditions if c.get("type") == kind), None)


def set_condition(
    previous: Iterable[Mapping[str, Any]],
    kind: str,
    status: str,
    reason: str,
    message: str,
    *,
    now: datetime,
    generation: int,
) -> Condition:
    """The condition to write, given those that stand. An empty message is a fault of the caller."""
    if not message:
        raise ValueError(f"condition {kind}/{reason} needs a message: kstatus prints it to people")
    before = find(previous, kind)
    kept = before is not None and before.get("status") == status and before.get("lastTransitionTime")
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": shorten(message),
        "lastTransitionTime": before["lastTransitionTime"] if before is not None and kept else stamp(now),
        "observedGeneration": generation,
    }
