"""What can go wrong between a program and the store.

    StoreError
    ├── StaleToken         the fencing token is no longer ours: stop, write nothing, exit 86
    ├── StoreFailedOver    the server is another incarnation than the one that issued our token
    ├── StoreUnavailable   may get better: refused, lost, shut down, too many clients, a timeout
    ├── StoreRejected      will not get better by itself: the reason says what is wrong with the request
    │   └── CancelWon      an accepted cancel allows no other outcome than `cancelled`
    └── SchemaMismatch     the database is older than this program

asyncpg's exceptions never leave this package: `translate` maps each of them once.
"""

from typing import Final

import asyncpg

FAILED_OVER: Final = "TR002"
REJECTED: Final = "TR003"


class StoreError(Exception):
    """Anything the store answered instead of a result."""


class StaleToken(StoreError):
    """The capability is not current, or another holder has claimed the attempt. Nothing was written."""


class StoreFailedOver(StoreError):
    """Refused until `treadle-migrate fence-all` has made this server's history the current one."""


class StoreUnavailable(StoreError):
    """Transient. `maybe_committed` tells whether the statement may have had its effect all the same."""

    def __init__(self, message: str, *, maybe_committed: bool) -> None:
        super().__init__(message)
        self.maybe_committed = maybe_committed


class StoreRejected(StoreError):
    """Refused for good. `reason` is one PascalCase word, `message` says what to change."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class CancelWon(StoreRejected):
    """A cancel was accepted before the run began to finalize: settle it as cancelled."""

    def __init__(self) -> None:
        super().__init__("CancelWon", "the run was cancelled first: settle it as cancelled")


class SchemaMismatch(StoreError):
    """The database's schema is older than this program."""

    def __init__(self, have: int, want: int) -> None:
        super().__init__(
            f"the store's schema is at version {have}, this program needs {want}: run treadle-migrate up"
        )
        self.have = have
        self.want = want


# SQLSTATE classes after which the statement has certainly had no effect and another try may succeed.
_RETRY_CLASSES: Final = ("40", "53", "55", "57")
# FATAL or lost: the answer is missing, the effect may not be.
_UNKNOWN_OUTCOME: Final = frozenset({"57P01", "57P02", "57P05", "40003"})
_READ_ONLY: Final = "25006"


def translate(error: BaseException) -> StoreError:
    """The store's word for an exception of asyncpg or of the socket below it."""
    match error:
        case asyncpg.PostgresError():
            return _from_server(error)
        case (
            asyncpg.DataError() | asyncpg.ClientConfigurationError() | asyncpg.UnsupportedClientFeatureError()
        ):
            return StoreRejected("InvalidArgument", str(error))
        case ConnectionRefusedError() | FileNotFoundError():
            return StoreUnavailable(str(error) or "the server refused the connection", maybe_committed=False)
        case (
            asyncpg.InterfaceError() | asyncpg.InternalClientError() | TimeoutError() | OSError() | EOFError()
        ):
            return StoreUnavailable(str(error) or "the store did not answer in time", maybe_committed=True)
        case _:
            return StoreError(f"{type(error).__name__}: {error}")


def _from_server(error: asyncpg.PostgresError) -> StoreError:
    state = error.sqlstate or ""
    if state == FAILED_OVER:
        return StoreFailedOver(str(error))
    if state == REJECTED:
        return StoreRejected(error.detail or "Rejected", error.args[0] if error.args else "refused")
    if state.startswith("08") or state in _UNKNOWN_OUTCOME:
        return StoreUnavailable(str(error), maybe_committed=True)
    if state.startswith(_RETRY_CLASSES) or state == _READ_ONLY:
        return StoreUnavailable(str(error), maybe_committed=False)
    return StoreRejected(_reason(error), str(error))


def _reason(error: asyncpg.PostgresError) -> str:
    return type(error).__name__.removesuffix("Error")
