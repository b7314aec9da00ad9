"""A TCP gate in front of a server: shut, it refuses and cuts; open, it forwards; held, it says nothing."""

import asyncio
import contextlib


class Gate:
    """Listens on a loopback port of its own. `async with Gate(host, port)`; begins open."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._pairs: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.port = 0

    async def __aenter__(self) -> "Gate":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Refuses new connections and cuts those that stand."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for pair in list(self._pairs):
            pair.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def hold(self) -> None:
        """From now on nothing passes, and nobody is told: a server that hangs, a network that drops."""
        self._flowing.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        try:
            theirs, ours = await asyncio.open_connection(self._host, self._port)
            try:
                await asyncio.gather(self._copy(reader, ours), self._copy(theirs, writer))
            finally:
                ours.close()
        except (OSError, asyncio.CancelledError):
            pass  # cut, by either side or by the test: the task of a server's callback ends here
        finally:
            self._pairs.discard(task)
            writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
