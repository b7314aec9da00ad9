"""What somebody with an agent pod's Redis credential can reach (R92, the wire's part)."""

import re
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import ResponseError

from support.redis_server import RedisServer
from support.stream_factories import (
    LOG,
    NAMESPACE,
    OTHER_THREAD,
    THREAD,
    an_assignment,
    an_event,
    grant,
    whole_stream,
)
from treadle_api.names import nudge_channel, stream_key, stream_password, stream_user, token_key
from treadle_store.stream_client import Client
from treadle_store.stream_publisher import PUBLISH_SHA
from treadle_store.stream_wire import _RAISE_SCRIPT
from treadle_store.streams import Publisher, Wire, WireUnavailable, open_reader

OWN_STREAM, OTHER_STREAM = stream_key(NAMESPACE, THREAD, LOG), stream_key(NAMESPACE, OTHER_THREAD, LOG)
OWN_TOKEN, OTHER_TOKEN = token_key(NAMESPACE, THREAD), token_key(NAMESPACE, OTHER_THREAD)
ENTRY = ("*", "run", "r", "token", "1", "type", "t", "data", "{}")

REFUSED = r"(?i)noperm|no permissions|can't access|command not allowed"

FORBIDDEN: list[tuple[str | int, ...]] = [
    # another thread's stream
    ("XADD", OTHER_STREAM, *ENTRY),
    ("UNLINK", OTHER_STREAM),
    ("PEXPIRE", OTHER_STREAM, 1),
    ("XINFO STREAM", OTHER_STREAM),
    ("XREAD", "STREAMS", OTHER_STREAM, "0"),
    ("XRANGE", OTHER_STREAM, "-", "+"),
    ("EVALSHA", PUBLISH_SHA, 1, OTHER_STREAM, OTHER_TOKEN, 1, 10, 1000, 1, "1-0", "r", "t", "{}"),
    ("EVALSHA", PUBLISH_SHA, 1, OTHER_STREAM, OWN_TOKEN, 1, 10, 1000, 1, "1-0", "r", "t", "{}"),
    # the same thread's stream of another log, and streams of another namespace
    ("XADD", stream_key(NAMESPACE, THREAD, "2i1"), *ENTRY),
    ("XADD", stream_key("team-b", THREAD, LOG), *ENTRY),
    # token keys
    ("GET", OTHER_TOKEN),
    ("SET", OWN_TOKEN, 99),
    ("UNLINK", OWN_TOKEN),
    ("PEXPIRE", OWN_TOKEN, 1),
    ("XADD", OWN_TOKEN, *ENTRY),
    # channels
    ("PUBLISH", nudge_channel("team-b"), "x"),
    ("PUBLISH", "elsewhere", "x"),
    # commands that reach further than one key
    ("EVAL", "while true do end", 0),
    ("SCRIPT LOAD", "return 1"),
    ("SCRIPT FLUSH",),
    ("SCRIPT KILL",),
    ("FUNCTION LOAD", "#!lua name=x\nredis.register_function('f', function() end)"),
    ("KEYS", "*"),
    ("SCAN", 0),
    ("RANDOMKEY",),
    ("DBSIZE",),
    ("INFO",),
    ("CONFIG GET", "*"),
    ("CONFIG SET", "maxmemory", 1),
    ("ACL LIST",),
    ("ACL WHOAMI",),
    ("ACL SETUSER", "me", "on"),
    ("CLIENT LIST",),
    ("CLIENT KILL", "TYPE", "normal"),
    ("CLIENT PAUSE", 10_000),
    ("CLIENT NO-EVICT", "on"),
    ("DEBUG", "SLEEP", 1),
    ("MONITOR",),
    ("SHUTDOWN", "NOSAVE"),
    ("FLUSHALL",),
    ("SWAPDB", 0, 1),
    ("SELECT", 1),
    ("REPLICAOF", "127.0.0.1", 1),
    ("SAVE",),
    ("MULTI",),
    ("WAIT", 1, 10_000),
    ("RENAME", OWN_STREAM, OTHER_STREAM),
    ("COPY", OWN_STREAM, OTHER_STREAM),
    ("RESTORE", OWN_STREAM, 0, "x"),
    ("LATENCY DOCTOR",),
    ("SLOWLOG GET",),
    ("MEMORY USAGE", OWN_STREAM),
    ("OBJECT FREQ", OTHER_STREAM),
]


@pytest.fixture
async def hostile(redis_server: RedisServer, wire: Wire) -> AsyncIterator[Client]:
    """The connection of a granted agent, next to another thread with a publisher of its own."""
    for thread in (THREAD, OTHER_THREAD):
        await grant(wire, an_assignment(thread=thread))
        async with Publisher(redis_server.address, an_assignment(thread=thread)) as publisher:
            await publisher.publish([an_event(1)])
    own = an_assignment().capability
    client = Client(
        redis_server.address,
        name="hostile",
        username=stream_user(THREAD, 1),
        password=stream_password(own.fence_key),
    )
    yield client
    await client.close()


@pytest.mark.req("R92")
async def test_an_agent_reaches_nothing_but_its_own_stream(
    redis_server: RedisServer, hostile: Client
) -> None:
    state = await everything(redis_server)
    answers = {command: await answer(hostile, command) for command in FORBIDDEN}
    assert {command: got for command, got in answers.items() if not re.search(REFUSED, got)} == {}
    assert await everything(redis_server) == state


@pytest.mark.req("R92")
async def test_subscribing_is_refused_even_on_the_own_channel(hostile: Client) -> None:
    for command in ("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"):
        with pytest.raises(ResponseError, match=REFUSED):
            await hostile.call(command, nudge_channel(NAMESPACE))


@pytest.mark.req("R92")
async def test_scripts_of_the_operator_do_nothing_in_an_agents_hands(
    redis_server: RedisServer, hostile: Client
) -> None:
    sha = await redis_server.call("SCRIPT LOAD", _RAISE_SCRIPT)
    with pytest.raises(ResponseError, match=REFUSED):
        await hostile.call("EVALSHA", sha, 1, OWN_TOKEN, 99)
    with pytest.raises(ResponseError):
        await hostile.call("EVALSHA", sha, 1, OWN_STREAM, 99)
    assert await redis_server.call("GET", OWN_TOKEN) == b"1"


@pytest.mark.req("R92")
async def test_nobody_gets_in_without_a_granted_key(redis_server: RedisServer, hostile: Client) -> None:
    for user, password in (("default", ""), ("default", "x"), (stream_user(THREAD, 1), "guess")):
        stranger = Client(redis_server.address, name="x", username=user, password=password)
        with pytest.raises(Exception, match=r"(?i)wrongpass|authentication|invalid"):
            await stranger.call("PING")
        await stranger.close()


@pytest.mark.req("R20")
async def test_a_takeover_closes_the_connections_of_the_token_before(
    redis_server: RedisServer, wire: Wire, hostile: Client
) -> None:
    await hostile.call("XADD", OWN_STREAM, *ENTRY)
    await grant(wire, an_assignment(2))
    with pytest.raises(Exception, match=r"(?i)closed|wrongpass|reset|invalid username"):
        await hostile.call("XADD", OWN_STREAM, *ENTRY)


async def test_a_poisoned_stream_is_thrown_away_by_the_next_honest_publisher(
    redis_server: RedisServer, wire: Wire, hostile: Client
) -> None:
    await hostile.call("XADD", OWN_STREAM, f"{2**64 - 1}-{2**64 - 1}", *ENTRY[1:])
    await grant(wire, an_assignment(2))
    async with Publisher(redis_server.address, an_assignment(2)) as publisher:
        assert await publisher.publish([an_event(2, token=2)])
    async with open_reader(redis_server.admin_url, max_connections=1) as reader:
        frames = await whole_stream(reader, OWN_STREAM)
    assert [(frame.seq, frame.token) for frame in frames] == [(2, 2)]


async def test_a_flood_into_the_own_stream_does_not_stop_other_threads(
    redis_server: RedisServer, wire: Wire, hostile: Client
) -> None:
    for _ in range(100):
        await hostile.call("XADD", OWN_STREAM, *ENTRY[:-1], b"x" * 1_000_000)
    with pytest.raises(Exception, match=r"(?i)invalid bulk length|closed|reset|pipe"):
        await hostile.call("XADD", OWN_STREAM, *ENTRY[:-1], b"x" * 2_000_000)
    await grant(wire, an_assignment(thread=OTHER_THREAD))
    async with Publisher(redis_server.address, an_assignment(thread=OTHER_THREAD)) as publisher:
        assert await publisher.publish([an_event(2)])


async def test_entries_that_no_publisher_wrote_are_passed_over(
    redis_server: RedisServer, hostile: Client
) -> None:
    for fields in (
        ("a", "b"),
        ("run", "r", "token", "x", "type", "t", "data", "{}"),
        (*ENTRY[1:-1], "[1]"),
        (*ENTRY[1:-1], "[" * 100_000),
        (*ENTRY[1:-1], b"\xff"),
    ):
        await hostile.call("XADD", OWN_STREAM, "1-*", *fields)
    async with open_reader(redis_server.admin_url, max_connections=1) as reader:
        page = await reader.page(OWN_STREAM, (1, 0), count=100, seen=False)
    assert page is not None
    assert [frame.seq for frame in page.frames] == [1]
    assert page.last == (1, 5)


@pytest.mark.req("R92")
async def test_the_gateways_user_only_reads_streams(
    redis_server: RedisServer, wire: Wire, hostile: Client
) -> None:
    await wire.admit_reader("treadle-gateway", "reader")
    async with open_reader(redis_server.url("treadle-gateway", "reader"), max_connections=1) as reader:
        assert (await reader.locate(OWN_STREAM, (0, 0))).first == (1, 0)
        with pytest.raises(WireUnavailable, match="NoPermission"):
            await reader.locate(OWN_TOKEN, (0, 0))
    for command in (
        ("XADD", OWN_STREAM, *ENTRY),
        ("UNLINK", OWN_STREAM),
        ("GET", OWN_TOKEN),
        ("KEYS", "*"),
        ("PUBLISH", nudge_channel(NAMESPACE), "x"),
        ("ACL LIST",),
        ("EVAL", "return 1", 0),
    ):
        with pytest.raises(ResponseError, match=REFUSED):
            await redis_server.call(*command, user="treadle-gateway", password="reader")


async def answer(client: Client, command: tuple[str | int, ...]) -> str:
    try:
        return f"allowed: {await client.call(*command)!r}"
    except ResponseError as error:
        return str(error)


async def everything(server: RedisServer) -> dict[str, object]:
    return {
        "keys": sorted(await server.call("KEYS", "*")),
        "own": await server.call("XRANGE", OWN_STREAM, "-", "+"),
        "other": await server.call("XRANGE", OTHER_STREAM, "-", "+"),
        "tokens": [await server.call("GET", key) for key in (OWN_TOKEN, OTHER_TOKEN)],
        "users": await server.call("ACL USERS"),
        "maxmemory": await server.call("CONFIG GET", "maxmemory"),
    }
