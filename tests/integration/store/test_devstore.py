"""The private servers of a laptop: they start from nothing, keep their data, and leave nothing behind."""

import asyncio
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis.asyncio

from support.eventually import eventually
from treadle_store import devstore
from treadle_store.devstore import DevStore, DevStoreError
from treadle_store.pool import open_connection


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the servers' user can reach; pytest's own is closed to it."""
    with tempfile.TemporaryDirectory(prefix="treadle-test-") as made:
        Path(made).chmod(0o711)
        yield Path(made) / "store"


async def test_a_data_directory_keeps_its_contents_and_passwords(folder: Path) -> None:
    async with DevStore.start(folder) as store:
        connection = await open_connection(store.admin_dsn, application="test")
        await connection.execute("CREATE TABLE kept (n int)")
        await connection.close()
        async with redis.asyncio.from_url(store.redis_url) as client:
            await client.set("kept", "1")
        first = store.admin_dsn.split("@")[0]
    async with DevStore.start(folder) as store:
        assert store.admin_dsn.split("@")[0] == first
        connection = await open_connection(store.admin_dsn, application="test")
        assert await connection.fetch("SELECT * FROM kept") == []
        await connection.close()
        async with redis.asyncio.from_url(store.redis_url) as client:
            assert await client.get("kept") == b"1"


async def test_a_missing_program_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(
        DevStoreError, match=r"setpriv was not found: install both: apt-get install postgresql"
    ):
        async with DevStore.start():
            pass
    monkeypatch.setattr(glob, "glob", lambda pattern: [])
    with pytest.raises(DevStoreError, match="initdb was not found"):
        devstore._program("initdb")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives the servers another user")
async def test_a_folder_that_the_servers_cannot_reach_is_refused_with_the_reason(folder: Path) -> None:
    folder.parent.chmod(0o700)
    with pytest.raises(DevStoreError, match="must be reachable by user postgres"):
        async with DevStore.start(folder):
            pass


async def test_the_servers_end_with_a_process_that_is_killed() -> None:
    script = (
        "import asyncio, sys\n"
        "from treadle_store.devstore import DevStore\n"
        "async def main():\n"
        "    async with DevStore.start(durable=False) as store:\n"
        "        print(*(server.pid for server in store._servers), store._folder, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    *pids, folder = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()
    assert [_alive(int(pid)) for pid in pids] == [True, True]

    process.send_signal(signal.SIGKILL)
    await process.wait()

    async def gone() -> bool:
        return not any(_alive(int(pid)) for pid in pids)

    await eventually(gone, "both servers have ended", within=20)
    await asyncio.to_thread(shutil.rmtree, folder)
