"""Whatever Redis does becomes one exception; names that could widen a right are refused."""

import asyncio

import pytest
import redis.exceptions
from hypothesis import given
from hypothesis import strategies as st

from treadle_api.names import stream_user
from treadle_store.stream_acl import agent_rules, parse_user
from treadle_store.stream_client import WireUnavailable, decode, encode, translated

FAILURES = sorted(
    (
        found
        for found in vars(redis.exceptions).values()
        if isinstance(found, type) and issubclass(found, redis.exceptions.RedisError)
    ),
    key=lambda found: found.__name__,
)


@pytest.mark.parametrize("failure", [*FAILURES, OSError, ConnectionResetError, TimeoutError])
async def test_every_failure_of_the_client_is_translated(failure: type[Exception]) -> None:
    with pytest.raises(WireUnavailable) as unavailable:
        async with translated("trying"):
            raise failure.__new__(failure)
    assert unavailable.value.reason == failure.__name__


async def test_a_deadline_is_a_failure_and_a_cancellation_is_none() -> None:
    with pytest.raises(WireUnavailable, match="TimeoutError"):
        async with translated("waiting", 0.01):
            await asyncio.Event().wait()
    with pytest.raises(asyncio.CancelledError):
        async with translated("waiting", 1):
            raise asyncio.CancelledError


@pytest.mark.parametrize("name", ["*", "a*", "a?", "a[b]", "a b", "", "a:b", "a\n", "~a"])
def test_a_name_that_could_act_as_a_pattern_is_refused(name: str) -> None:
    for names in ((name, "t", "1i1"), ("n", name, "1i1"), ("n", "t", name)):
        with pytest.raises(ValueError, match="letters, digits"):
            agent_rules(*names, "p")


def test_the_password_stands_in_the_rules_as_a_hash_only() -> None:
    assert not any("secret" in rule for rule in agent_rules("n", "t", "1i1", "secret"))


@given(st.uuids(), st.integers(0, 2**53))
def test_the_user_of_a_token_is_recognised(thread: object, token: int) -> None:
    assert parse_user(stream_user(str(thread), token)) == (str(thread), token)


@pytest.mark.parametrize("name", ["default", "treadle-gateway", "treadle-operator", "x-1-2", "treadle-t-"])
def test_other_users_are_none_of_ours(name: str) -> None:
    assert parse_user(name) is None


@given(st.dictionaries(st.sampled_from([b"run", b"token", b"type", b"data", b"x"]), st.binary(max_size=20)))
def test_no_entry_of_a_stream_does_harm(fields: dict[bytes, bytes]) -> None:
    frame = decode(b"5-1", fields)
    assert frame is None or (frame.seq, frame.n) == (5, 1)


def test_what_is_too_large_for_a_frame_is_left_to_the_log() -> None:
    assert encode({"text": "x" * 65_000}) is not None
    assert encode({"text": "x" * 65_536}) is None
    assert encode({"text": "\ud800"}) == b'{"text":"?"}'
