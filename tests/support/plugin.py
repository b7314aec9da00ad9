"""kubectl with our plug-in in its PATH, as a user has it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from support.cluster import Cluster

_ROOT = Path(__file__).resolve().parents[2]


def install(folder: Path) -> None:
    """Puts `kubectl-treadle` into `folder`; it runs the sources of this checkout."""
    program = folder / "kubectl-treadle"
    path = os.pathsep.join(str(_ROOT / name) for name in ("crds", "operator"))
    program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} -m treadle_cli "$@"\n')
    program.chmod(0o755)


@dataclass(frozen=True)
class Plugin:
    """Runs kubectl in `folder`, where the plug-in is installed."""

    cluster: Cluster
    namespace: str
    folder: Path

    @asynccontextmanager
    async def started(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """`kubectl treadle ...` in the namespace, under way."""
        async with self.kubectl("treadle", *words, "-n", self.namespace) as process:
            yield process

    @asynccontextmanager
    async def kubectl(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """kubectl with just these words."""
        environment = {**os.environ, **self.cluster.exports}
        environment["PATH"] = f"{self.folder}:{environment['PATH']}"
        process = await asyncio.create_subprocess_exec(
            *("kubectl", *words),
            cwd=self.folder,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output and error of `kubectl treadle ...`."""
        async with self.started(*words) as process:
            return await _ended(process)

    async def succeeds(self, *words: str) -> str:
        """The standard output of kubectl; fails with what it said if it did not end with 0."""
        async with self.kubectl(*words) as process:
            code, out, err = await _ended(process)
        assert code == 0, f"kubectl {' '.join(words)}: {out}{err}"
        return out


async def _ended(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    async with asyncio.timeout(180):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()
