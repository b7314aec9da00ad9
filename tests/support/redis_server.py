"""A private Redis whose default user is off, as a cluster runs it; tests may stop, restart and flush it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from redis.exceptions import ConnectionError as RedisConnectionError

from treadle_store.devstore import free_port
from treadle_store.stream_client import Client
from treadle_store.streams import SERVER_SETTINGS

ADMIN_PASSWORD = "admin-of-the-test"
START_SECONDS = 10.0


class RedisServer:
    """`address` carries no credentials, as the Secret of an agent namespace; `admin_url` may do anything."""

    def __init__(self, directory: Path, *, maxmemory: str = "64mb") -> None:
        self.port = free_port()
        self._directory = directory
        self._settings = {"maxmemory": maxmemory, **SERVER_SETTINGS}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        return self.url("admin", ADMIN_PASSWORD)

    def url(self, user: str, password: str) -> str:
        return f"redis://{user}:{password}@127.0.0.1:{self.port}"

    async def call(
        self, *command: bytes | str | int, user: str = "admin", password: str = ADMIN_PASSWORD
    ) -> Any:
        """The answer to one command on a connection of its own."""
        client = Client(self.url(user, password), name="test")
        try:
            return await client.call(*command)
        finally:
            await client.close()

    async def start(self) -> None:
        """Returns once the server answers; raises TimeoutError after `START_SECONDS`."""
        settings = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self._directory,
            "save": '""',
            **self._settings,
        }
        lines = [f"{name} {value}" for name, value in settings.items()]
        lines += ["user default off", f"user admin on >{ADMIN_PASSWORD} ~* &* +@all"]
        config = self._directory / "redis.conf"
        config.write_text("\n".join(lines))
        self._process = await asyncio.create_subprocess_exec(
            "redis-server", str(config), stdout=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(START_SECONDS):
            while not await self._answers():  # noqa: ASYNC110 - another process has nothing to wait on
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Kill the server; everything it held is gone."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _answers(self) -> bool:
        try:
            return bool(await self.call("PING"))
        except (RedisConnectionError, OSError):
            return False

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path, *, maxmemory: str = "64mb") -> AsyncIterator[Self]:
        server = cls(directory, maxmemory=maxmemory)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()
