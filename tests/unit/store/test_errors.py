"""Every exception of the driver becomes one of the store's, chosen once."""

import asyncio
import inspect
from collections.abc import Iterator

import asyncpg
import pytest

from treadle_store import errors
from treadle_store.errors import StoreError, StoreFailedOver, StoreRejected, StoreUnavailable, translate
from treadle_store.roles import agent_role, scram_verifier

TRANSIENT = {
    "AdminShutdownError": True,
    "CrashShutdownError": True,
    "CannotConnectNowError": False,
    "ConnectionDoesNotExistError": True,
    "ConnectionFailureError": True,
    "DeadlockDetectedError": False,
    "DiskFullError": False,
    "IdleSessionTimeoutError": True,
    "LockNotAvailableError": False,
    "ObjectNotInPrerequisiteStateError": False,
    "QueryCanceledError": False,
    "ReadOnlySQLTransactionError": False,
    "SerializationError": False,
    "StatementCompletionUnknownError": True,
    "TooManyConnectionsError": False,
    "TransactionResolutionUnknownError": True,
}
"""Class -> whether the statement may have committed all the same."""


def _driver_errors() -> Iterator[type[Exception]]:
    for _, kind in inspect.getmembers(asyncpg.exceptions, inspect.isclass):
        if issubclass(kind, Exception) and not issubclass(kind, Warning):
            yield kind


@pytest.mark.parametrize("kind", list(_driver_errors()))
def test_every_class_of_the_driver_has_its_translation(kind: type[Exception]) -> None:
    translated = translate(kind("text"))

    assert type(translated) in (StoreUnavailable, StoreRejected)


@pytest.mark.parametrize("name", TRANSIENT)
def test_trouble_that_passes_is_told_from_a_refusal(name: str) -> None:
    translated = translate(getattr(asyncpg, name)("text"))

    assert isinstance(translated, StoreUnavailable)
    assert translated.maybe_committed is TRANSIENT[name]


@pytest.mark.parametrize(
    ("error", "maybe"),
    [
        (ConnectionRefusedError(), False),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (asyncio.IncompleteReadError(b"", 1), True),
        (asyncpg.InterfaceError("connection is closed"), True),
    ],
)
def test_a_socket_that_breaks_is_unavailable(error: Exception, maybe: bool) -> None:
    translated = translate(error)

    assert isinstance(translated, StoreUnavailable)
    assert translated.maybe_committed is maybe
    assert str(translated)


def test_our_own_codes_keep_their_reason() -> None:
    failed_over = asyncpg.PostgresError.new({"C": errors.FAILED_OVER, "M": "moved"})
    refused = asyncpg.PostgresError.new(
        {"C": errors.REJECTED, "M": "too large: send less", "D": "BatchTooLarge"}
    )

    assert isinstance(translate(failed_over), StoreFailedOver)
    rejected = translate(refused)
    assert isinstance(rejected, StoreRejected)
    assert (rejected.reason, rejected.message) == ("BatchTooLarge", "too large: send less")


def test_an_unforeseen_exception_is_a_store_error_that_names_it() -> None:
    assert str(translate(KeyError("x"))) == "KeyError: 'x'"
    assert type(translate(KeyError("x"))) is StoreError


@pytest.mark.parametrize("password", ["", "naïve", "a\nb"])
def test_a_password_that_clients_would_prepare_differently_is_refused(password: str) -> None:
    with pytest.raises(StoreRejected, match="PasswordInvalid"):
        scram_verifier(password)


def test_a_namespace_s_role_is_its_own_and_fits_an_identifier() -> None:
    assert agent_role("team-a") != agent_role("team-b")
    assert len(agent_role("n" * 40)) <= 63
    for wrong in ("", "Team", "a" * 41, 'x"; DROP ROLE y', "-a"):
        with pytest.raises(StoreRejected, match="NamespaceInvalid"):
            agent_role(wrong)
