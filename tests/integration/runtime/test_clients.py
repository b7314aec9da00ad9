"""Clients of store and stream live as long as the attempt, however it ends."""

import asyncio
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest

from support.agent_process import Harness, Run
from support.eventually import eventually
from support.scripts import configuration
from treadle_api import contract
from treadle_api.contract import ExitCode
from treadle_api.names import stream_user
from treadle_api.records import Json
from treadle_runtime.endings import Misconfigured
from treadle_runtime.keeper.wire import LeaseOrder
from treadle_runtime.keeperlink import KeeperLink
from treadle_runtime.session import Session
from treadle_runtime.settings import Settings
from treadle_store.stream_client import Client

HELLO: list[Json] = [{"text": "hello"}]


class HoldingKeeper:
    """Stands for the pipe to a keeper that holds every Lease it is asked for."""

    reason = ""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.released = False

    def order(self, order: LeaseOrder) -> None:
        pass

    async def held(self) -> str:
        return "nonce"

    def release(self) -> None:
        self.released = True


class Attempt:
    """An attempt of `run` within this process, whose connections the servers can be asked for."""

    def __init__(self, harness: Harness, run: Run) -> None:
        self._harness = harness
        self._run = run
        self._uid = str(uuid4())
        self.keeper = HoldingKeeper()

    async def execute(self, workspace: Path) -> ExitCode:
        harness = self._harness
        assigned = await harness.assign(self._run)
        environment = {
            contract.ENV_POD_KEY: assigned.pod_key,
            contract.ENV_POD_UID: self._uid,
            contract.ENV_NAMESPACE: harness.namespace,
            contract.ENV_STORE_DSN: harness.store.agent,
            contract.ENV_STREAM_URL: f"redis://{harness.redis_url.rpartition('@')[2].removeprefix('redis://')}",
            contract.ENV_WORKSPACE: str(workspace),
        }
        link = cast(KeeperLink, self.keeper)
        return await Session(Settings.from_environment(environment), link).run()

    async def connections(self) -> tuple[int, int]:
        """How many Postgres and Redis hold open for this attempt."""
        to_store = await self._harness.admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", f"treadle-agent/{self._uid}"
        )
        assert self._run.token is not None
        user = stream_user(self._run.thread_id, self._run.token)
        admin = Client(self._harness.redis_url, name="test")
        try:
            listed: bytes = await admin.call("CLIENT", "LIST")
        finally:
            await admin.close()
        return int(to_store), listed.decode().count(f" user={user} ")

    async def open_to_both(self) -> bool:
        return self._run.token is not None and all(await self.connections())

    async def closed_to_both(self) -> bool:
        return await self.connections() == (0, 0)


@pytest.mark.timeout(120)
@pytest.mark.req("R77")
async def test_clients_are_open_while_the_graph_runs_and_closed_after_it(
    harness: Harness, tmp_path: Path
) -> None:
    run = await harness.admit(configuration([{**HELLO[0], "sleep_seconds": 1}]))
    attempt = Attempt(harness, run)
    executing = asyncio.create_task(attempt.execute(tmp_path / "files"))
    await eventually(attempt.open_to_both, "both clients are connected", within=30, every=0.02)
    assert await executing is ExitCode.ANSWERED
    assert attempt.keeper.released
    await eventually(attempt.closed_to_both, "both clients are closed", within=10)


@pytest.mark.timeout(120)
@pytest.mark.req("R77")
async def test_clients_are_closed_where_the_graph_cannot_be_built(harness: Harness, tmp_path: Path) -> None:
    run = await harness.admit(configuration(HELLO, graph="support.user_graphs:unbuildable"))
    attempt = Attempt(harness, run)
    with pytest.raises(Misconfigured, match="no licence"):
        await attempt.execute(tmp_path / "files")
    await eventually(attempt.closed_to_both, "both clients are closed", within=10)
    assert not attempt.keeper.released
