"""The operator as a process of this checkout: started, asked over HTTP, stopped or killed."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30.0
_PATHS = ("crds", "operator", "runtime")


class OperatorProcess:
    """`python -m treadle_operator` against a kubeconfig and a store. One at a time per object."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._environment = {
            "TREADLE_HTTP_HOST": "127.0.0.1",
            "TREADLE_HTTP_PORT": "0",
            "TREADLE_STOP_GRACE_SECONDS": "5",
            **environment,
        }
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._started_at = 0
        self.port = 0

    async def start(self, *, ready: bool = True, **environment: str) -> None:
        """Starts it; with `ready` it then leads and has seen everything."""
        inherited = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
        self._started_at = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "treadle_operator",
                cwd="/",
                env={
                    **inherited,
                    "PYTHONPATH": os.pathsep.join(str(ROOT / path) for path in _PATHS),
                    **self._environment,
                    **environment,
                },
                stdout=log,
                stderr=log,
            )
        self.port = await eventually(self._told_port, "the operator listens", within=START_SECONDS)
        if ready:
            await eventually(self.leads, "the operator leads", within=START_SECONDS)

    async def _told_port(self) -> int:
        assert self._process is not None
        assert self._process.returncode is None, f"the operator ended:\n{self.text()}"
        for line in self.lines():
            if line.get("message") == "The operator started":
                return int(line["port"])
        return 0

    async def leads(self) -> bool:
        """Whether it works: it leads, has seen everything, and its gauges stand."""
        return (await self.metrics()).get("treadle_leader") == 1.0

    async def ask(self, path: str) -> tuple[int, str]:
        """Status and text of one of its addresses."""
        url = f"http://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as client, client.get(url) as response:
            return response.status, await response.text()

    async def metrics(self) -> dict[str, float]:
        """Samples by name with labels, as `treadle_status_writes_total{kind="runs"}`."""
        _, text = await self.ask("/metrics")
        samples = re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in samples}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def ended(self, *, within: float = 20.0) -> int:
        """Waits for its end; the exit code, negative for a signal."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), within)

    async def kill(self) -> None:
        """SIGKILL: nothing is cleaned up."""
        if self.running:
            assert self._process is not None
            self._process.kill()
            await self.ended()

    async def stop(self) -> int:
        """SIGTERM, as the kubelet sends it; the exit code."""
        assert self._process is not None
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        return await self.ended()

    def text(self) -> str:
        """What this start has written so far."""
        return self._log.read_bytes()[self._started_at :].decode()

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self.text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # a line that is being written, or not from our logger
        return found
