"""The local cluster as tests see it: what `localcluster env` tells, and kubectl as an awaitable."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).resolve().parent
UP_SECONDS = 3600  # on a machine that has nothing, the programs are compiled first


class KubectlFailed(Exception):
    """kubectl ended with another code than 0; the message holds what it said."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster: the exports that lead to it, and our images in it."""

    exports: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.exports["TREADLE_CLUSTER_NAME"]

    @property
    def kubeconfig(self) -> Path:
        return Path(self.exports["KUBECONFIG"])

    def image(self, key: str) -> str:
        """The image `operator`, `runtime` or `devstore` as a pod names it."""
        return self.exports[f"TREADLE_{key.upper()}_IMAGE"]

    async def run(self, *words: str, stdin: str | None = None, seconds: float = 60) -> str:
        """A program of the cluster (kubectl, helm, docker, kind) with the exports set; its standard output.

        Raises KubectlFailed with what the program said, or TimeoutError.
        """
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self.exports},
        )
        try:
            async with asyncio.timeout(seconds):
                out, err = await process.communicate(stdin.encode() if stdin is not None else None)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise KubectlFailed(f"`{shlex.join(words)}`: {err.decode().strip() or out.decode().strip()}")
        return out.decode()

    async def kubectl(
        self, *words: str, namespace: str | None = None, stdin: str | None = None, seconds: float = 60
    ) -> str:
        place = ("--namespace", namespace) if namespace else ()
        return await self.run("kubectl", *place, *words, stdin=stdin, seconds=seconds)

    async def get(self, *words: str, namespace: str | None = None) -> Any:
        """`kubectl get ... -o json`, parsed."""
        return json.loads(await self.kubectl("get", *words, "--output", "json", namespace=namespace))

    async def apply(self, *objects: Mapping[str, Any], namespace: str | None = None) -> None:
        """Apply objects given as plain dictionaries."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        await self.kubectl("apply", "--filename", "-", namespace=namespace, stdin=json.dumps(listed))


def localcluster(*words: str, seconds: float = UP_SECONDS) -> str:
    """The harness as its users call it; pytest shows its standard error when a test fails."""
    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-m", "localcluster", *words],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds,
        check=True,
    )
    return done.stdout


def start(*words: str) -> Cluster:
    """`up` (at once if it runs already), then the cluster behind it. `words`: --name and --nodes."""
    localcluster("up", *words)
    name = words[words.index("--name") : words.index("--name") + 2] if "--name" in words else ()
    return Cluster(read_exports(localcluster("env", *name, seconds=60)))


def read_exports(text: str) -> dict[str, str]:
    """Parse `export NAME='value'` lines; PATH alone refers to what it was."""
    pairs = (shlex.split(line)[1] for line in text.splitlines() if line.startswith("export "))
    values = dict(pair.split("=", 1) for pair in pairs)
    if "PATH" in values:
        values["PATH"] = values["PATH"].replace("$PATH", os.environ.get("PATH", ""))
    return values
