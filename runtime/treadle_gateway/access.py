"""Who may read: Kubernetes decides, we remember its answers for some seconds."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from .problems import Problem, unavailable

CACHE_SECONDS: Final = 10.0
"""Longest that a withdrawn right or token goes on working here."""
CACHE_ENTRIES: Final = 2048
TOKEN_LENGTH_LIMIT: Final = 16_384


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as TokenReview names it."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class AccessUnavailable(Exception):
    """The question could not be put; neither yes nor no."""


class Access(Protocol):
    """Asks Kubernetes. Both methods raise AccessUnavailable."""

    async def authenticate(self, token: str) -> Identity | None:
        """The user that the bearer token belongs to; None where it is not valid."""
        ...

    async def may_get_run(self, identity: Identity, namespace: str, name: str) -> bool:
        """Whether the user may `get` that Run object. `name` "" asks for all of the namespace."""
        ...


Key = TypeVar("Key")
Value = TypeVar("Value")


class _Recent(Generic[Key, Value]):
    """Answers of the last seconds, the least recently used leave first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        until, value = self._entries.get(key, (0.0, None))
        if self._clock() >= until:
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        self._entries[key] = (self._clock() + CACHE_SECONDS, value)
        self._entries.move_to_end(key)
        if len(self._entries) > CACHE_ENTRIES:
            self._entries.popitem(last=False)


class Guard:
    """Lets requests in or raises a Problem. Refusals are remembered as short as permissions."""

    def __init__(self, access: Access, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._identities: _Recent[bytes, tuple[Identity | None]] = _Recent(clock)
        self._decisions: _Recent[tuple[Identity, str, str], bool] = _Recent(clock)

    async def identify(self, authorization: str | None) -> Identity:
        """The user of an Authorization header.

        Raises Problem: 401, or 503 where Kubernetes does not answer.
        """
        scheme, _, token = (authorization or "").strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _unauthorized("send a Kubernetes token as Authorization: Bearer <token>")
        if len(token) > TOKEN_LENGTH_LIMIT:
            raise _unauthorized("the bearer token is too long to be one of Kubernetes")
        key = hashlib.sha256(token.encode()).digest()
        known = self._identities.get(key)
        if known is None:
            try:
                known = (await self._access.authenticate(token),)
            except AccessUnavailable as error:
                raise unavailable(
                    "AuthenticationUnavailable", "Kubernetes checks no tokens now: try again"
                ) from error
            self._identities.put(key, known)
        if known[0] is None:
            raise _unauthorized(
                "Kubernetes does not accept this token: it has expired or belongs to another cluster"
            )
        return known[0]

    async def require_run(self, identity: Identity, namespace: str, name: str) -> None:
        """Raises Problem: 403, or 503 where Kubernetes does not answer."""
        key = (identity, namespace, name)
        allowed = self._decisions.get(key)
        if allowed is None:
            try:
                allowed = await self._access.may_get_run(identity, namespace, name)
            except AccessUnavailable as error:
                raise unavailable(
                    "AuthorizationUnavailable", "Kubernetes does not answer now: try again"
                ) from error
            self._decisions.put(key, allowed)
        if not allowed:
            what = f"run {name}" if name else "runs"
            raise Problem(
                403,
                "Forbidden",
                f"{identity.name} may not get {what} in namespace {namespace}: bind a role for runs there",
            )


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "Unauthorized", detail, {"WWW-Authenticate": 'Bearer realm="treadle"'})
