"""The one Postgres and Redis of a test session, in a process of their own: `python -m support.store_server
FOLDER`.

Every pytest process holds a shared lock on FOLDER/users while it lives. This process waits for the exclusive
one, which the kernel grants when the last of them is gone, however it went, and then stops the servers.
"""

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import sys
from pathlib import Path

from treadle_store.devstore import DevStore
from treadle_store.errors import StoreError
from treadle_store.migrate import connect, ensure_logins, migrate
from treadle_store.roles import LOGINS

TEMPLATE = "treadle_template"
# The takeover harness asks in which order transactions committed.
_SETTINGS = ("track_commit_timestamp=on",)


async def _make_template(admin_dsn: str) -> dict[str, str]:
    """A migrated database that tests clone; returns the passwords of the login roles."""
    server = await connect(admin_dsn, wait=10)
    await server.execute(f"CREATE DATABASE {TEMPLATE}")
    await server.close()
    template = await connect(admin_dsn.rsplit("/", 1)[0] + f"/{TEMPLATE}", wait=10)
    passwords = {program: secrets.token_hex(8) for program in LOGINS}
    try:
        await migrate(template)
        await ensure_logins(template, passwords)
    finally:
        await template.close()
    return passwords


async def _serve(folder: Path) -> None:
    async with DevStore.start(durable=False, settings=_SETTINGS) as store:
        passwords = await _make_template(store.admin_dsn)
        told = {
            "admin_dsn": store.admin_dsn,
            "redis_url": store.redis_url,
            "passwords": passwords,
            "pid": os.getpid(),
        }
        draft = folder / "draft"
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(told))
        draft.rename(folder / "store.json")
        with (folder / "users").open("rb") as users:
            await asyncio.to_thread(fcntl.flock, users, fcntl.LOCK_EX)
            (folder / "store.json").unlink()
    shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    folder = Path(sys.argv[1])
    try:
        asyncio.run(_serve(folder))
    except StoreError as error:
        (folder / "error").write_text(str(error))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
