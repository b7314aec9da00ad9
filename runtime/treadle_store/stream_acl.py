"""Who may do what on the live wire: one Redis user per fencing token, one read-only user for the gateways.

Redis judges the commands inside a script by the caller's own rights (since 7.0 with read and write
apart), so a user needs the right to every command of the publishing script and could also send them by
hand. What the rules hold is therefore the reach: one stream, one key to read, one channel to publish to.
Scripts can only be run by hash, so nobody but the operator decides which.
"""

import hashlib
import re
from typing import Final

from treadle_api.names import nudge_channel, stream_key, token_key

USER_PREFIX: Final = "treadle-"

SERVER_SETTINGS: Final = {
    "maxmemory-policy": "allkeys-lru",
    "proto-max-bulk-len": "1mb",
    "client-query-buffer-limit": "4mb",
    "busy-reply-threshold": "1000",
}
"""What a Redis for Treadle should run with, beside `maxmemory` and a default user that is off: an agent may
fill its own stream, so the server bounds one value and evicts instead of refusing the other threads."""

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_USER = re.compile(rf"{USER_PREFIX}(?P<thread>.+)-(?P<token>[0-9]+)")


def _checked(*parts: str) -> None:
    """Names become key patterns; a glob character in one would widen it."""
    for part in parts:
        if not _PART.fullmatch(part):
            raise ValueError(
                f"{part!r} cannot be part of a stream's name: use letters, digits, '.', '_' and '-'"
            )


def _password(password: str) -> str:
    """As a hash, so that the password itself stands in no slow log and no MONITOR."""
    return "#" + hashlib.sha256(password.encode()).hexdigest()


def agent_rules(namespace: str, thread_id: str, log: str, password: str) -> list[str]:
    """ACL SETUSER rules of the holder of one fencing token.

    Raises ValueError for names that could act as a pattern.
    """
    _checked(namespace, thread_id, log)
    return [
        *("reset", "on", _password(password)),
        *(f"~{stream_key(namespace, thread_id, log)}", f"%R~{token_key(namespace, thread_id)}"),
        f"&{nudge_channel(namespace)}",
        *("-@all", "+ping", "+client|setname", "+evalsha", "+get"),
        *("+xadd", "+pexpire", "+unlink", "+xinfo|stream", "+publish"),
    ]


def reader_rules(password: str) -> list[str]:
    """ACL SETUSER rules of the gateways: every live stream, reading only."""
    return [
        *("reset", "on", _password(password), "%R~treadle:*:live"),
        *("-@all", "+ping", "+client|setname", "+xread", "+xrange", "+xrevrange"),
    ]


def parse_user(name: str) -> tuple[str, int] | None:
    """`(thread_id, token)` of a user that `treadle_api.names.stream_user` named; None for any other."""
    match = _USER.fullmatch(name)
    return (match["thread"], int(match["token"])) if match else None
