"""The kubectl that runs us, as an adapter: it knows every way to log in to a cluster."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from .arguments import Options
from .errors import CliError

CALL_SECONDS: Final = 30.0
FORWARD_SECONDS: Final = 20.0
"""Longest wait for a port-forward to stand."""
STOP_SECONDS: Final = 5.0

_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


class KubectlError(CliError):
    """kubectl ended with an error; the message is its own."""


class Kubectl:
    """Runs kubectl against one cluster."""

    def __init__(self, options: Options) -> None:
        self._program = shutil.which("kubectl") or ""
        if not self._program:
            raise CliError("there is no kubectl in PATH", "install kubectl, the plug-in works through it")
        self._flags: list[str] = []
        for name in ("context", "kubeconfig"):
            if value := getattr(options, name):
                self._flags += [f"--{name}", value]

    async def call(self, *arguments: str) -> str:
        """Standard output. Raises KubectlError with what kubectl said, CliError after `CALL_SECONDS`."""
        process = await asyncio.create_subprocess_exec(
            *(self._program, *self._flags, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(CALL_SECONDS):
                out, err = await process.communicate()
        except TimeoutError as error:
            raise CliError(
                f"kubectl {arguments[0]} did not answer within {CALL_SECONDS:.0f} s",
                "is the cluster reachable?",
            ) from error
        finally:
            await _end(process)
        if process.returncode:
            raise KubectlError(err.decode(errors="replace").strip() or f"kubectl {arguments[0]} failed")
        return out.decode(errors="replace")

    async def get(self, *arguments: str) -> Any:
        """The answer of `kubectl get ... -o json`."""
        return json.loads(await self.call("get", *arguments, "-o", "json"))

    async def pass_through(self, *arguments: str) -> int:
        """Run kubectl on our own terminal, for as long as it takes; its exit code."""
        process = await asyncio.create_subprocess_exec(self._program, *self._flags, *arguments)
        try:
            return await process.wait()
        finally:
            await _end(process)

    @asynccontextmanager
    async def port_forward(self, namespace: str, service: str, port: int) -> AsyncIterator["Forward"]:
        """A way from loopback to a Service, for the time of the block."""
        forward = Forward(
            self._program, [*self._flags, "port-forward", "-n", namespace, f"svc/{service}", f":{port}"]
        )
        try:
            yield forward
        finally:
            await forward.close()


class Forward:
    """A port-forward that is set up when it is needed, and again when it broke."""

    def __init__(self, program: str, arguments: list[str]) -> None:
        self._command = (program, *arguments)
        self._process: asyncio.subprocess.Process | None = None
        self._drain: asyncio.Task[bytes] | None = None
        self._port = 0

    async def port(self) -> int:
        """The local port. Raises CliError where none comes to stand within `FORWARD_SECONDS`."""
        if self._process is None or self._process.returncode is not None:
            await self.close()
            self._port = await self._start()
        return self._port

    async def close(self) -> None:
        if self._process is not None:
            await _end(self._process)
        if self._drain is not None:
            await self._drain
        self._process = self._drain = None

    async def _start(self) -> int:
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None  # noqa: S101 - PIPE was asked for
        said = ""
        try:
            async with asyncio.timeout(FORWARD_SECONDS):
                async for line in process.stdout:
                    said = line.decode(errors="replace").strip()
                    if match := _FORWARDING.match(said):
                        # kubectl reports every connection; a full pipe would stop it.
                        self._drain = asyncio.create_task(process.stdout.read())
                        return int(match[1])
        except TimeoutError:
            said = f"no port-forward within {FORWARD_SECONDS:.0f} s"
        raise CliError(
            f"the gateway cannot be reached: {said}",
            "may you create pods/portforward in the gateway's namespace? Else pass --gateway-url",
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
