"""A gateway on loopback, a client for its streams, and an `Access` that a test decides."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

from treadle_gateway.access import AccessUnavailable, Guard, Identity
from treadle_gateway.app import create_app
from treadle_gateway.follow import Pace
from treadle_gateway.records import Records
from treadle_gateway.services import Services
from treadle_gateway.slots import Slots
from treadle_store.pool import Pool
from treadle_store.streams import open_reader

READER_TOKEN = "reader-token"
STRANGER_TOKEN = "stranger-token"
WIRED = Pace(wired=0.3, polling=1.0, store_outage=1.0)
POLLING = Pace(polling=0.1, store_outage=1.0)


@dataclass
class FakeAccess:
    """Knows some tokens; `rights` holds (user, namespace, run), run "*" for all.

    Proven by the same tests as the real one (`support.access_contract`).
    """

    users: dict[str, Identity] = field(default_factory=dict)
    rights: set[tuple[str, str, str]] = field(default_factory=set)
    down: bool = False
    asked: int = 0

    def add(self, token: str, name: str, *namespaces: str) -> None:
        self.users[token] = Identity(name, f"uid-of-{name}", ("system:authenticated",))
        self.rights |= {(name, namespace, "*") for namespace in namespaces}

    async def authenticate(self, token: str) -> Identity | None:
        self._ask()
        return self.users.get(token)

    async def may_get_run(self, identity: Identity, namespace: str, name: str) -> bool:
        self._ask()
        return bool({(identity.name, namespace, "*"), (identity.name, namespace, name)} & self.rights)

    def _ask(self) -> None:
        self.asked += 1
        if self.down:
            raise AccessUnavailable


@dataclass(frozen=True)
class SseFrame:
    """One server-sent event as a client sees it; comments have only `comment`."""

    event: str = ""
    data: Any = None
    id: str = ""
    comment: str = ""


@dataclass
class GatewayUnderTest:
    url: str
    services: Services
    server: uvicorn.Server

    def client(self, token: str | None = READER_TOKEN) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=20, verify=False)

    @contextlib.asynccontextmanager
    async def stream(
        self, namespace: str, run: str, *, after: str | None = None
    ) -> AsyncIterator[AsyncIterator[SseFrame]]:
        headers = {"Last-Event-ID": after} if after is not None else {}
        async with self.client() as client:
            path = f"/ns/{namespace}/v1/runs/{run}/stream"
            async with client.stream("GET", path, headers=headers) as response:
                assert response.status_code == 200, (await response.aread()).decode()
                yield parse(response.aiter_lines())

    async def whole(self, namespace: str, run: str, *, after: str | None = None) -> list[SseFrame]:
        """Every frame until the server closes the stream."""
        async with asyncio.timeout(20), self.stream(namespace, run, after=after) as frames:
            return [frame async for frame in frames if not frame.comment]


async def parse(lines: AsyncIterator[str]) -> AsyncIterator[SseFrame]:
    seen: dict[str, str] = {}
    async for line in lines:
        if line.startswith(":"):
            yield SseFrame(comment=line[1:].strip())
        elif line:
            name, _, value = line.partition(": ")
            seen[name] = value
        elif seen:
            yield SseFrame(seen.get("event", ""), json.loads(seen["data"]), seen.get("id", ""))
            seen = {}


async def take(frames: AsyncIterator[SseFrame], count: int, *, comments: bool = False) -> list[SseFrame]:
    """The next `count` frames, comments left out unless wanted."""
    taken: list[SseFrame] = []
    async with asyncio.timeout(20):
        while len(taken) < count:
            frame = await anext(frames)
            if comments or not frame.comment:
                taken.append(frame)
    return taken


async def until(frames: AsyncIterator[SseFrame], event: str, text: str | None = None) -> list[SseFrame]:
    """Frames up to and with the first of that event (and text), comments left out."""
    taken: list[SseFrame] = []
    while not taken or taken[-1].event != event or (text is not None and taken[-1].data["text"] != text):
        taken += await take(frames, 1)
    return taken


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def gateway_running(
    pool: Pool,
    access: FakeAccess,
    redis_url: str | None,
    *,
    streams: int = 20,
    pace: Pace = WIRED,
    heartbeat_seconds: float = 15.0,
    send_seconds: float = 30.0,
) -> AsyncIterator[GatewayUnderTest]:
    async with contextlib.AsyncExitStack() as stack:
        reader = None
        if redis_url:
            reader = await stack.enter_async_context(open_reader(redis_url, max_connections=streams))
        services = Services(
            Records(pool),
            Guard(access),
            reader,
            Slots(streams, "streams"),
            Slots(2, "downloads"),
            pace,
            heartbeat_seconds,
            send_seconds,
        )
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        config = uvicorn.Config(
            create_app(services),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield GatewayUnderTest(f"http://127.0.0.1:{listening.getsockname()[1]}", services, server)
        finally:
            server.should_exit = True
            await serving
            listening.close()
