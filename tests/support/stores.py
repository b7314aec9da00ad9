"""Fixtures of a real store: one server per session, a cloned database per test, one login per program.

A test module of the integration tier gets them through `tests/integration/conftest.py`; another tier imports
them.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.store_server import TEMPLATE
from treadle_store.hardening import harden
from treadle_store.pool import Connection, Pool, open_connection, open_pool
from treadle_store.roles import LOGINS

_START_SECONDS = 90


@dataclass(frozen=True, slots=True)
class Server:
    """The servers of this session."""

    admin_dsn: str
    redis_url: str
    passwords: dict[str, str]

    def dsn(self, database: str, program: str | None = None) -> str:
        """A DSN of `database` for the login of `program`, or for the superuser."""
        if program is None:
            return f"{self.admin_dsn.rsplit('/', 1)[0]}/{database}"
        address = self.admin_dsn.rsplit("@", 1)[1].split("/", 1)[0]
        return f"postgresql://{LOGINS[program]}:{self.passwords[program]}@{address}/{database}"


@dataclass(slots=True)
class Store:
    """One test's database. `admin`, `operator`, `gateway` and `agent` are DSNs; connections end with the
    test."""

    database: str
    admin: str
    operator: str
    gateway: str
    agent: str
    _open: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack, init=False)

    async def pool(self, program: str, *, max_size: int = 4) -> Pool:
        """A pool for `admin`, `operator`, `gateway` or `agent`."""
        pool = await open_pool(getattr(self, program), application=f"test-{program}", max_size=max_size)
        self._open.callback(pool.terminate)
        return pool

    async def connect(self, program: str) -> Connection:
        """A connection for `admin`, `operator`, `gateway` or `agent`."""
        connection = await open_connection(getattr(self, program), application=f"test-{program}")
        self._open.callback(connection.terminate)
        return connection

    async def close(self) -> None:
        await self._open.aclose()


def _session_folder(config: pytest.Config) -> Path:
    session = getattr(config, "workerinput", {}).get("testrunuid", f"pid{os.getpid()}")
    folder = Path(tempfile.gettempdir()) / f"treadle-tests-{os.getuid()}-{session}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _start(folder: Path) -> None:
    """Starts the server process of the session and waits until it tells where it is, or what is missing."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "support.store_server", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while not (folder / "store.json").exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(0.05)
            error = folder / "error"
            reason = error.read_text() if error.exists() else (folder / "log").read_text()[-2000:]
            pytest.fail(f"the integration tier needs a private Postgres and Redis: {reason}", pytrace=False)
        if time.monotonic() > deadline:
            server.terminate()
            pytest.fail(f"Postgres and Redis did not start within {_START_SECONDS} s", pytrace=False)
    server.returncode = 0  # it outlives us on purpose: the other workers may need it longer


@pytest.fixture(scope="session")
def store_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Postgres and Redis, shared by every worker of the session; they stop when the last worker has ended."""
    folder = _session_folder(request.config)
    (folder / "users").touch(mode=0o600)
    with (folder / "users").open("rb") as users, (folder / "starting").open("wb") as starting:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not (folder / "store.json").exists():
            _start(folder)
        fcntl.flock(starting, fcntl.LOCK_UN)
        told: dict[str, Any] = json.loads((folder / "store.json").read_text())
        yield Server(told["admin_dsn"], told["redis_url"], told["passwords"])


@pytest.fixture
async def store(store_server: Server) -> AsyncIterator[Store]:
    """A migrated, hardened, empty database of this test alone."""
    database = f"t_{uuid4().hex}"
    server = await open_connection(store_server.admin_dsn, application="test-fixture")
    try:
        await server.execute(f"CREATE DATABASE {database} TEMPLATE {TEMPLATE}")
        # Rights on the database itself are not cloned.
        fresh = await open_connection(store_server.dsn(database), application="test-fixture")
        await harden(fresh)
        await fresh.close()
        made = Store(
            database, store_server.dsn(database), **{p: store_server.dsn(database, p) for p in LOGINS}
        )
        try:
            yield made
        finally:
            await made.close()
            await server.execute(f"DROP DATABASE {database} WITH (FORCE)")
    finally:
        await server.close()


@pytest.fixture
def redis_url(store_server: Server) -> str:
    """Redis as its administrator. Tests share it: use `namespace` in every key."""
    return store_server.redis_url


@pytest.fixture
def namespace() -> str:
    """A Kubernetes namespace, and so a prefix of Redis keys, that no other test uses."""
    return f"ns-{uuid4().hex[:12]}"
