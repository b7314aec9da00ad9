"""The pipe between keeper and agent: JSON lines, one message each. Standard library only.

agent -> keeper: `{"lease": {"name", "namespace", "duration", "renew"}}` once · `{"beat": n}` every second ·
`{"release": true}` as its last word.
keeper -> agent: `{"held": nonce}` once · `{"lost": reason}` before it kills.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

LINE_LIMIT: Final = 4096
"""Bytes of one line; a longer one is a protocol error."""


class WireError(ValueError):
    """The other side sent something that is no message of this protocol."""


@dataclass(frozen=True, slots=True)
class LeaseOrder:
    """Which Lease the keeper is to take. `duration` and `renew` are seconds."""

    name: str
    namespace: str
    duration: int
    renew: int


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise WireError(f"not a JSON line: {line[:80]!r}") from error
    if not isinstance(message, dict) or len(message) != 1:
        raise WireError(f"not an object with one key: {line[:80]!r}")
    return message


def lease_order(value: Any) -> LeaseOrder:
    """The order inside a `lease` message.

    Raises WireError where a field is missing or where three renewals do not fit into the duration.
    """
    try:
        order = LeaseOrder(
            name=str(value["name"]),
            namespace=str(value["namespace"]),
            duration=int(value["duration"]),
            renew=int(value["renew"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"a lease order needs name, namespace, duration, renew: {error}") from error
    if order.renew < 1 or order.duration < 3 * order.renew:
        raise WireError(f"lease duration {order.duration}s must be at least 3 x renew {order.renew}s")
    return order
