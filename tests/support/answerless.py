"""A proxy between a client and Postgres that loses one answer: the statement committed, nobody was told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

_BIND_COMPLETE = b"2"
_READY = b"Z"


class Answerless:
    """`dsn` leads through the proxy. After `lose_next_answer` the next execution's answer is swallowed whole,
    commit included, and its connection closed."""

    def __init__(self, server_dsn: str) -> None:
        self._target = urlsplit(server_dsn)
        self._lose = False
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def before(cls, server_dsn: str) -> AsyncIterator["Answerless"]:
        proxy = cls(server_dsn)
        proxy._listener = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        try:
            yield proxy
        finally:
            proxy._listener.close()
            for task in proxy._tasks:
                task.cancel()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)

    @property
    def dsn(self) -> str:
        assert self._listener is not None
        port = self._listener.sockets[0].getsockname()[1]
        credentials = self._target.netloc.rsplit("@", 1)[0]
        return urlunsplit(self._target._replace(netloc=f"{credentials}@127.0.0.1:{port}"))

    def lose_next_answer(self) -> None:
        self._lose = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up, down = await asyncio.open_connection(self._target.hostname, self._target.port)
        both = [
            asyncio.create_task(self._requests(reader, down)),
            asyncio.create_task(self._answers(up, writer)),
        ]
        self._tasks.update(both)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        for end in (down, writer):
            end.close()

    async def _requests(self, reader: asyncio.StreamReader, down: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            down.write(data)
            await down.drain()

    async def _answers(self, up: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        swallowing = False
        while data := await up.read(65536):
            # The client is idle when `lose_next_answer` is called, so `data` begins at a message.
            while self._lose and data:
                while len(data) < 5 or len(data) < 1 + int.from_bytes(data[1:5], "big"):
                    data += await up.read(65536)
                size = 1 + int.from_bytes(data[1:5], "big")
                message, data = data[:size], data[size:]
                swallowing = swallowing or message[:1] == _BIND_COMPLETE
                if not swallowing:
                    writer.write(message)
                elif message[:1] == _READY:
                    self._lose = False
                    return
            writer.write(data)
            await writer.drain()
