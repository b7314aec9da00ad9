"""Keeper and agent as bare processes on a real store; the test plays the operator."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from support.eventually import eventually
from support.lease_server import LeaseServer
from support.stored_runs import StoredRuns
from support.stores import Store
from treadle_api import contract
from treadle_api.names import lease_name, pod_name, stream_key
from treadle_api.records import (
    Admission,
    AdmitFile,
    Assigned,
    FencingToken,
    Json,
    LossClass,
    RunUID,
    ThreadID,
)
from treadle_runtime.failpoints import ENV_FAILPOINTS
from treadle_runtime.termination import ENV_TERMINATION_PATH
from treadle_store import runs, threads
from treadle_store.pool import Connection
from treadle_store.stream_client import Client, decode
from treadle_store.streams import Wire, WireFrame, WireUnavailable

_SOURCES = ("crds", "runtime", "tests")


@dataclass(slots=True)
class Pod:
    """A started keeper with its agent, and what is left of it afterwards."""

    name: str
    process: asyncio.subprocess.Process
    folder: Path

    @property
    def keeper(self) -> int:
        return self.process.pid

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def termination(self) -> Json:
        path = self.folder / "termination"
        return json.loads(path.read_text()) if path.exists() else {}

    def agent(self) -> int | None:
        """The agent's pid, None while or once there is none."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            children = Path(f"/proc/{self.keeper}/task/{self.keeper}/children").read_text().split()
            return int(children[0])
        return None

    def kill(self, which: str, number: int = signal.SIGKILL) -> None:
        """Signal the `keeper` or the `agent`."""
        pid = self.keeper if which == "keeper" else self.agent()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def ended(self, within: float = 60) -> int:
        """The keeper's exit code; -n where signal n ended it."""
        async with asyncio.timeout(within):
            return await self.process.wait()


@dataclass(slots=True)
class Run:
    """A run that the test admitted, with what the operator knows of it."""

    run_id: RunUID
    thread_id: ThreadID
    name: str
    attempt: int = 0
    token: FencingToken | None = None


@dataclass
class Harness(StoredRuns):
    """Admits runs, assigns attempts, starts pods; every process it started is gone at the end."""

    store: Store
    admin: Connection
    leases: LeaseServer
    folder: Path
    namespace: str
    wire: Wire
    redis_url: str
    """Redis as its administrator; agents get its address without credentials."""
    pods: list[Pod] = field(default_factory=list)

    async def admit(
        self,
        config: Json,
        *,
        text: str = "go",
        files: Mapping[str, bytes] | None = None,
        thread: ThreadID | None = None,
    ) -> Run:
        if thread is None:
            key = f"thread-{uuid4().hex[:12]}"
            row = await threads.register_thread(self.operator, self.namespace, key, key, str(uuid4()), "lead")
            thread = row.thread_id
        run_id = RunUID(str(uuid4()))
        admission = Admission(
            run_id=run_id,
            namespace=self.namespace,
            name=f"run-{run_id[:8]}",
            thread_id=thread,
            spec_hash="0" * 64,
            input={"text": text},
            config=config,
            object_created=datetime.now(UTC),
            files=[AdmitFile(path, data, "text/plain") for path, data in (files or {}).items()],
        )
        admitted = await runs.admit_run(self.operator, admission)
        assert admitted.result == "admitted", admitted
        return Run(run_id, thread, admission.name)

    async def assign(self, run: Run, loss: LossClass | None = None) -> Assigned:
        """Bump the token, then grant the stream and move the Lease, in the order of 03-ownership."""
        row = await threads.read_thread(self.operator, run.thread_id)
        assert row is not None
        run.attempt += 1
        pod = pod_name(run.name, run.attempt)
        assigned = await runs.assign_run(
            self.operator,
            run_id=run.run_id,
            attempt=run.attempt,
            expected_token=row.fencing_token,
            pod=pod,
            loss=loss,
            reason=None if loss is None else "AgentCrashed",
        )
        assert assigned is not None, "the assignment lost its race, in a test that races nobody"
        run.token = assigned.token
        with contextlib.suppress(WireUnavailable):  # as for the operator: losing it costs latency
            await self.wire.grant(self.namespace, run.thread_id, row.log, assigned.token, assigned.fence_key)
        lease = lease_name(run.run_id)
        if (self.namespace, lease) in self.leases.leases:
            self.leases.give_to(self.namespace, lease, pod)
        else:
            self.leases.create(self.namespace, lease, pod=pod)
        return assigned

    async def start(
        self, assigned: Assigned, *, failpoints: str = "", environment: Mapping[str, str] | None = None
    ) -> Pod:
        """A pod for the attempt: an empty workspace, the keeper, the agent."""
        folder = self.folder / f"pod-{len(self.pods)}"
        (folder / "workspace").mkdir(parents=True)
        root = Path(__file__).parents[2]
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(str(root / name) for name in _SOURCES),
            "KUBECONFIG": str(self.leases.kubeconfig(folder)),
            "HOME": str(folder),
            ENV_TERMINATION_PATH: str(folder / "termination"),
            ENV_FAILPOINTS: failpoints,
            contract.ENV_POD_KEY: assigned.pod_key,
            contract.ENV_POD_NAME: assigned.pod,
            contract.ENV_POD_UID: str(uuid4()),
            contract.ENV_NAMESPACE: self.namespace,
            contract.ENV_STORE_DSN: self.store.agent,
            contract.ENV_WORKSPACE: str(folder / "workspace"),
            contract.ENV_DRAIN_SECONDS: "20",
            contract.ENV_STREAM_URL: f"redis://{self.redis_url.rpartition('@')[2].removeprefix('redis://')}",
            **(environment or {}),
        }
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-W",
                "error::DeprecationWarning:treadle_runtime",
                "-m",
                "treadle_runtime.keeper",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables,
                start_new_session=True,
            )
        pod = Pod(assigned.pod, process, folder)
        self.pods.append(pod)
        return pod

    async def attempt(self, run: Run, *, loss: LossClass | None = None, **options: Any) -> Pod:
        """The next attempt's pod, assigned and started."""
        return await self.start(await self.assign(run, loss), **options)

    async def drive(self, run: Run, *, failpoints: Sequence[str] = (), within: float = 60) -> int:
        """Attempt after attempt, one failpoint each, until the receipt is there; how many it took."""
        remaining = list(failpoints)
        for number in range(1, len(remaining) + 4):
            point = remaining.pop(0) if remaining else ""
            loss = None if run.attempt == 0 else LossClass.RETRY
            pod = await self.attempt(run, loss=loss, failpoints=point)
            code = await pod.ended(within)
            if await self.receipt(run) is not None:
                return number
            assert code != contract.ExitCode.CONFIGURATION, pod.log
        raise AssertionError(f"no receipt after {run.attempt} attempts\n{self.pods[-1].log}")

    async def stopped(self, pod: Pod, within: float = 60) -> None:
        """Wait until the agent has stopped itself, then stop its keeper: the whole pod is frozen."""

        async def probe() -> bool:
            agent = pod.agent()
            assert pod.process.returncode is None, pod.log
            return agent is not None and _state(agent) == "T"

        await eventually(probe, "the agent stops at its failpoint", within=within)
        pod.kill("keeper", signal.SIGSTOP)

    async def log_reaches(self, run: Run, length: int, within: float = 60) -> None:
        """Wait until the log has that many events."""

        async def probe() -> bool:
            return len(await self.log(run)) >= length

        await eventually(probe, f"{length} events in the log", within=within, every=0.005)

    async def agent_gone(self, pid: int, within: float = 60) -> None:
        """Wait until a process is gone or a zombie that its stopped parent has not reaped."""

        async def probe() -> bool:
            return _state(pid) in ("", "Z")

        await eventually(probe, f"process {pid} ends", within=within)

    async def frames(self, run: Run) -> list[WireFrame]:
        """Everything that the thread's stream holds."""
        client = Client(self.redis_url, name="test")
        try:
            row = await threads.read_thread(self.operator, run.thread_id)
            assert row is not None
            entries = await client.call(
                "XRANGE", stream_key(self.namespace, run.thread_id, row.log), "-", "+"
            )
        finally:
            await client.close()
        frames = [decode(identity, fields) for identity, fields in entries]
        return [frame for frame in frames if frame is not None]

    async def close(self) -> None:
        """End what is still running: keepers by pid, agents by their process group."""
        for pod in self.pods:
            agent = pod.agent()
            for pid in (agent, pod.keeper if pod.process.returncode is None else None):
                if pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            await pod.process.wait()


def _state(pid: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return ""
