"""The keeper as a real process over a stub of the agent."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.eventually import eventually
from support.lease_server import LeaseServer
from treadle_api.contract import ENV_DRAIN_SECONDS, ENV_POD_NAME, ENV_POD_UID, ExitCode
from treadle_runtime.keeper.guard import ENV_BEAT_LIMIT, ENV_CONTROL_PLANE_GRACE

ROOT = Path(__file__).parents[3]
LEASE = ("team", "run-1")


@dataclass
class Keeper:
    process: asyncio.subprocess.Process
    folder: Path
    leases: LeaseServer

    def seen(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def lives(self, name: str) -> bool:
        return Path(f"/proc/{self.seen(name)}").exists()

    async def held(self) -> None:
        async def probe() -> bool:
            return '{"held":' in self.seen("heard")

        await eventually(probe, f"the Lease is held\n{self.seen('log')}", within=30)
        assert self.leases.holder(*LEASE).startswith("uid-1/")

    async def renewals(self, count: int) -> None:
        wanted = self.leases.puts + count

        async def probe() -> bool:
            return self.leases.puts >= wanted

        await eventually(probe, f"{count} renewals", within=30)

    async def code(self) -> int:
        async with asyncio.timeout(40):
            return await self.process.wait()


@asynccontextmanager
async def keeper(folder: Path, leases: LeaseServer, mode: str, **limits: str) -> AsyncIterator[Keeper]:
    leases.create(*LEASE, pod="pod-1")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("crds", "runtime", "tests")),
        "KUBECONFIG": str(leases.kubeconfig(folder)),
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        ENV_POD_NAME: "pod-1",
        ENV_POD_UID: "uid-1",
        **limits,
    }
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "support.keeper_driver",
            str(folder),
            mode,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Keeper(process, folder, leases)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@pytest.mark.req("R19")
async def test_the_lease_is_released_when_the_agent_ends_and_its_exit_code_is_the_keepers(
    tmp_path: Path, leases: LeaseServer
) -> None:
    async with keeper(tmp_path, leases, "exit") as running:
        assert await running.code() == ExitCode.TRY_AGAIN, running.seen("log")
        assert leases.holder(*LEASE) == ""
        assert '{"held":' in running.seen("heard")
        environment = json.loads(running.seen("environ"))
        assert not [name for name in environment if name.startswith("KUBE")]


@pytest.mark.req("R19")
@pytest.mark.parametrize("how", ["taken", "deleted"])
async def test_an_agent_that_lost_its_lease_is_killed_at_once(
    tmp_path: Path, leases: LeaseServer, how: str
) -> None:
    async with keeper(tmp_path, leases, "deaf") as running:
        await running.held()
        if how == "taken":
            leases.give_to(*LEASE, "pod-2")
        else:
            leases.delete(*LEASE)
        assert await running.code() == ExitCode.FENCED
        assert (LEASE in leases.leases) is (how == "taken"), "never made again"
        if how == "taken":
            assert leases.holder(*LEASE) == "", "not taken back"


async def test_an_unreachable_api_server_kills_no_agent_until_the_grace_is_over(
    tmp_path: Path, leases: LeaseServer
) -> None:
    async with keeper(tmp_path, leases, "work", **{ENV_CONTROL_PLANE_GRACE: "10"}) as running:
        await running.held()
        leases.down = True

        async def failed() -> bool:
            return running.seen("log").count("lease not renewed") >= 2

        await eventually(failed, "two renewals failed")
        leases.down = False
        await running.renewals(2)
        leases.down = True
        assert await running.code() == ExitCode.FENCED


async def test_a_silent_agent_is_killed(tmp_path: Path, leases: LeaseServer) -> None:
    async with keeper(tmp_path, leases, "hang", **{ENV_BEAT_LIMIT: "3"}) as running:
        assert await running.code() == 128 + signal.SIGKILL
        assert "no heartbeat" in running.seen("log")
        assert leases.holder(*LEASE) == ""


async def test_sigterm_is_passed_on(tmp_path: Path, leases: LeaseServer) -> None:
    async with keeper(tmp_path, leases, "work") as running:
        await running.held()
        running.process.terminate()
        assert await running.code() == ExitCode.TRY_AGAIN
        assert (tmp_path / "stopped").exists()
        assert leases.holder(*LEASE) == ""


async def test_an_agent_that_does_not_drain_is_killed_when_its_budget_is_over(
    tmp_path: Path, leases: LeaseServer
) -> None:
    async with keeper(tmp_path, leases, "deaf", **{ENV_DRAIN_SECONDS: "1"}) as running:
        await running.held()
        running.process.terminate()
        assert await running.code() == 128 + signal.SIGKILL
        assert "drain budget" in running.seen("log")


async def test_orphans_are_reaped_and_the_agents_group_ends_with_it(
    tmp_path: Path, leases: LeaseServer
) -> None:
    async with keeper(tmp_path, leases, "orphan") as running:
        await running.held()

        async def reaped() -> bool:
            return bool(running.seen("zombie")) and not running.lives("zombie")

        await eventually(reaped, "the orphan is reaped")
        assert running.lives("grandchild")
        running.process.terminate()
        await running.code()

        async def gone() -> bool:
            return not running.lives("grandchild")

        await eventually(gone, "the agent's other processes are gone")


def test_the_agent_is_started_before_the_kubernetes_client_is_imported() -> None:
    import subprocess

    program = "import sys, treadle_runtime.keeper.__main__; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'runtime'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"pykube", "requests", "asyncio", "pydantic", "langgraph", "asyncpg", "treadle_store"}
