"""Login roles: one per program, or one per namespace for its agents.

Rights hang on the group roles of the migrations; a login role only inherits them. Passwords travel to the
server as SCRAM verifiers, so that no statement log ever holds one.
"""

import base64
import hashlib
import hmac
import re
import secrets
from typing import Final

from treadle_store.errors import StoreRejected
from treadle_store.pool import Connection

LOGINS: Final = {
    "operator": "treadle_operator_user",
    "gateway": "treadle_gateway_user",
    "agent": "treadle_agent_user",
}
"""Program -> the login role that `treadle-migrate up` makes for it."""

_AGENT_SETTINGS: Final = {
    # Not relied upon (a client can set them away): they end what a crashed client leaves behind.
    "statement_timeout": "15s",
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": "10s",
}
_ITERATIONS: Final = 4096


def agent_role(namespace: str) -> str:
    """The login role of one namespace's agents. Raises StoreRejected for what is no namespace's name."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", namespace):
        raise StoreRejected(
            "NamespaceInvalid",
            f"{namespace!r} is not a namespace of at most 40 lower-case letters, digits and dashes",
        )
    return f"treadle_agent_{namespace.replace('-', '_')}_{hashlib.sha256(namespace.encode()).hexdigest()[:6]}"


def scram_verifier(password: str, salt: bytes | None = None) -> str:
    """What Postgres stores of a password (RFC 5803); it must be printable ASCII (no SASLprep here)."""
    if not password or not password.isascii() or not password.isprintable():
        raise StoreRejected("PasswordInvalid", "a database password must be printable ASCII and not empty")
    salt = salt or secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    client = hmac.digest(salted, b"Client Key", "sha256")
    server = hmac.digest(salted, b"Server Key", "sha256")
    stored = hashlib.sha256(client).digest()
    salt64, stored64, server64 = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${_ITERATIONS}:{salt64}${stored64}:{server64}"


async def ensure_login(
    connection: Connection, login: str, group: str, password: str, *, connection_limit: int = -1
) -> None:
    """Makes `login` a member of `group` with this password, or brings it back to that (an agent may have
    changed it).

    Both names are ours. The owner becomes a member of an agent's login, because only a member may end its
    sessions.
    """
    if not await connection.fetchval("SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)", login):
        await connection.execute(f'CREATE ROLE "{login}" LOGIN')
    verifier = scram_verifier(password)
    await connection.execute(
        f"""ALTER ROLE "{login}" LOGIN NOCREATEDB NOCREATEROLE INHERIT
            CONNECTION LIMIT {int(connection_limit)} PASSWORD '{verifier}'"""
    )
    await connection.execute(f'ALTER ROLE "{login}" RESET ALL')
    await connection.execute(f'GRANT "{group}" TO "{login}"')
    if group == "treadle_agent":
        for setting, value in _AGENT_SETTINGS.items():
            await connection.execute(f"ALTER ROLE \"{login}\" SET {setting} = '{value}'")
        await connection.execute(f'GRANT "{login}" TO treadle_owner')
