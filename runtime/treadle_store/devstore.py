"""A private Postgres and Redis for a laptop, the tests and the demo.

Both listen on free ports of the loopback interface, with random passwords, under one data directory. They end
with this process, also when it is killed. Postgres refuses to run as root, so for root both run as user
`postgres`.

    python -m treadle_store.devstore [--data-dir DIR]     until interrupted; prints where to find them
"""

import argparse
import asyncio
import contextlib
import glob
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from treadle_store.errors import StoreError, StoreUnavailable
from treadle_store.migrate import connect

DATABASE: Final = "treadle"
_INSTALL: Final = "install both: apt-get install postgresql redis-server util-linux"
_SERVER_USER: Final = "user postgres" if os.geteuid() == 0 else "you"
_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 20
_SPEED: Final = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


_T = TypeVar("_T")


class DevStoreError(StoreError):
    """The servers could not be started; the message says what to install or look at."""


def _program(name: str) -> str:
    """The path of a server program, newest Postgres first."""
    if found := shutil.which(name):
        return found
    installed = glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
    if not installed:
        raise DevStoreError(f"{name} was not found: {_INSTALL}, or put its folder on PATH")
    return max(installed, key=lambda path: int(Path(path).parts[-3]))


def _prefix() -> list[str]:
    """What comes before a server's command: another user for root, and the kernel ends it after us."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise DevStoreError(f"setpriv was not found: {_INSTALL}")
    prefix = [setpriv, "--pdeathsig", "INT"]
    if os.geteuid() == 0:
        prefix += ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    return prefix


def _give(path: Path) -> None:
    """Lets the servers' user own `path`, where that is not us."""
    if os.geteuid() != 0:
        return
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        raise DevStoreError(f"there is no user postgres for the servers to run as: {_INSTALL}") from None
    os.chown(path, user.pw_uid, user.pw_gid)


def free_port() -> int:
    """A port of loopback that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class DevStore:
    """Two running servers. Make one with `DevStore.start`."""

    def __init__(self, folder: Path, *, temporary: bool) -> None:
        self._folder = folder
        self._temporary = temporary
        self._servers: list[asyncio.subprocess.Process] = []
        self._secrets = {"postgres": secrets.token_hex(16), "redis": secrets.token_hex(16)}
        self.postgres_port = 0
        self.redis_port = 0

    @property
    def admin_dsn(self) -> str:
        """The superuser's DSN of the database `treadle`."""
        return f"postgresql://postgres:{self._secrets['postgres']}@127.0.0.1:{self.postgres_port}/{DATABASE}"

    @property
    def redis_url(self) -> str:
        """The URL of Redis as its administrator."""
        return f"redis://:{self._secrets['redis']}@127.0.0.1:{self.redis_port}/0"

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls, data_dir: Path | str | None = None, *, durable: bool = True, settings: Sequence[str] = ()
    ) -> AsyncIterator[Self]:
        """Starts both servers and stops them at the end of the block.

        Without `data_dir` the data lives in a temporary folder and ends with the servers. `durable=False`
        trades crash safety for speed (tests). Raises DevStoreError with a sentence that says what to do.
        """
        folder = Path(data_dir) if data_dir else Path(tempfile.mkdtemp(prefix="treadle-store-"))
        store = cls(folder, temporary=data_dir is None)
        try:
            await store._start(durable, settings)
            yield store
        finally:
            await asyncio.shield(asyncio.ensure_future(store.stop()))

    async def stop(self) -> None:
        """Stops both servers (fast shutdown, then kill); removes a temporary folder."""
        for server in reversed(self._servers):
            if server.returncode is None:
                server.send_signal(signal.SIGINT)
                try:
                    await asyncio.wait_for(server.wait(), _STOP_SECONDS)
                except TimeoutError:
                    server.kill()
                    await server.wait()
        self._servers.clear()
        if self._temporary:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _start(self, durable: bool, settings: Sequence[str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        _give(self._folder)
        self._remember_secrets()
        await self._start_postgres([*settings, *([] if durable else _SPEED)])
        await self._start_redis(durable)

    def _remember_secrets(self) -> None:
        """A data directory that is used again keeps the passwords it was made with."""
        kept = self._folder / "secrets.json"
        if kept.exists():
            self._secrets = json.loads(kept.read_text())
            return
        kept.touch(mode=0o600)
        kept.write_text(json.dumps(self._secrets))

    async def _start_postgres(self, more_settings: Sequence[str]) -> None:
        data = self._folder / "postgres"
        if not (data / "PG_VERSION").exists():
            await self._initdb(data)
        self.postgres_port = free_port()
        settings = [
            "listen_addresses=127.0.0.1",
            f"port={self.postgres_port}",
            "unix_socket_directories=",
            "max_connections=300",
            "max_prepared_transactions=0",
            "shared_buffers=64MB",
            "logging_collector=off",
            *more_settings,
        ]
        arguments = [argument for setting in settings for argument in ("-c", setting)]
        server = await self._spawn("postgres.log", _program("postgres"), "-D", str(data), *arguments)
        admin = self.admin_dsn.removesuffix(DATABASE) + "postgres"
        connection = await self._unless_ended(server, "postgres.log", connect(admin, wait=_START_SECONDS))
        try:
            exists = "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)"
            if not await connection.fetchval(exists, DATABASE):
                await connection.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            await connection.close()

    async def _initdb(self, data: Path) -> None:
        password = self._folder / "initdb-password"
        password.touch(mode=0o600)
        password.write_text(self._secrets["postgres"])
        _give(password)
        arguments = ["-D", str(data), "-U", "postgres", "-A", "scram-sha-256", "--pwfile", str(password)]
        made = await self._spawn(
            "initdb.log", _program("initdb"), *arguments, "-E", "UTF8", "--locale", "C", "--no-sync"
        )
        self._servers.remove(made)
        if await made.wait() != 0:
            raise DevStoreError(
                f"initdb failed ({self._folder} must be reachable by {_SERVER_USER}):\n"
                f"{self._tail('initdb.log')}"
            )
        password.unlink()

    async def _start_redis(self, durable: bool) -> None:
        data = self._folder / "redis"
        data.mkdir(exist_ok=True)
        _give(data)
        self.redis_port = free_port()
        config = self._folder / "redis.conf"  # not arguments: every user may read a process's arguments
        config.touch(mode=0o600)
        config.write_text(
            f"bind 127.0.0.1\nport {self.redis_port}\ndir {data}\nrequirepass {self._secrets['redis']}\n"
            f'appendonly {"yes" if durable else "no"}\nsave ""\n'
        )
        _give(config)
        server = await self._spawn("redis.log", _program("redis-server"), str(config))
        await self._unless_ended(server, "redis.log", self._redis_answers())

    async def _redis_answers(self) -> None:
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.redis_port)
            except OSError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise StoreUnavailable(
                        f"redis-server does not answer: {error}", maybe_committed=False
                    ) from error
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                return

    async def _spawn(self, log: str, *command: str) -> asyncio.subprocess.Process:
        with (self._folder / log).open("wb") as output:
            server = await asyncio.create_subprocess_exec(
                *_prefix(),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                start_new_session=True,
            )
        self._servers.append(server)
        return server

    async def _unless_ended(
        self, server: asyncio.subprocess.Process, log: str, answer: Coroutine[Any, Any, _T]
    ) -> _T:
        """The answer, or DevStoreError at once when the server ends before it gives one."""
        ended = asyncio.ensure_future(server.wait())
        answered = asyncio.ensure_future(answer)
        try:
            await asyncio.wait({ended, answered}, return_when=asyncio.FIRST_COMPLETED)
            if not answered.done():
                raise DevStoreError(f"{log.removesuffix('.log')} ended at once:\n{self._tail(log)}")
            return answered.result()
        finally:
            for task in (ended, answered):
                task.cancel()
            await asyncio.gather(ended, answered, return_exceptions=True)

    def _tail(self, log: str) -> str:
        return (self._folder / log).read_text(errors="replace")[-2000:]


async def _serve(data_dir: str | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with DevStore.start(data_dir) as store:
        sys.stdout.write(f"TREADLE_MIGRATE_DSN={store.admin_dsn}\nTREADLE_STREAM_URL={store.redis_url}\n")
        sys.stdout.flush()
        await stop.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="treadle-devstore", description=__doc__)
    parser.add_argument("--data-dir", help="keep the data here; without it, it ends with the servers")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(_serve(options.data_dir))
    except StoreError as error:
        sys.stderr.write(f"treadle-devstore: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
