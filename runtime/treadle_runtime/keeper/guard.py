"""The keeper's loop: what the agent says, what the Lease says, what the kernel says.

Ends the agent's process group when ownership is lost (exit 86), forwards SIGTERM and kills after the
drain budget, kills an agent whose heartbeat fell silent, releases the Lease once the agent is gone.
"""

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from treadle_api.contract import ENV_DRAIN_SECONDS, ENV_POD_NAME, ENV_POD_UID, ExitCode
from treadle_runtime import logs, process
from treadle_runtime.keeper import child, wire
from treadle_runtime.keeper.lease import LeaseClient, LeaseGone, LeaseTaken, LeaseUnreachable

log = logging.getLogger("treadle.keeper")

ENV_BEAT_LIMIT: Final = "TREADLE_BEAT_LIMIT_SECONDS"
"""How long the agent's event loop may be silent before it counts as hung."""
ENV_CONTROL_PLANE_GRACE: Final = "TREADLE_CONTROL_PLANE_GRACE_SECONDS"
"""How long a run goes on while the API server cannot be reached (Continue mode of 03-ownership)."""

_TAKE_SECONDS: Final = 60.0
"""How long an agent waits for a Lease that its predecessor or the operator has not yet set free."""
_RETRY_SECONDS: Final = 0.5
_RELEASE_SECONDS: Final = 5.0
_KILL_AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds."""

    beat: float
    drain: float
    control_plane_grace: float
    beat_check: float = 1.0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Limits":
        return cls(
            beat=float(environ.get(ENV_BEAT_LIMIT, 60)),
            drain=float(environ.get(ENV_DRAIN_SECONDS, 60)),
            control_plane_grace=float(environ.get(ENV_CONTROL_PLANE_GRACE, 3600)),
        )


def run(agent: child.Child) -> int:
    """Guard `agent` until it is gone; the exit code is its own, or 86 when ownership was lost."""
    logs.set_up()
    process.hide_environment()
    code = asyncio.run(Guard(agent, Limits.from_environment(os.environ)).run())
    # A Lease call may still hang in its thread: nothing of it matters any more.
    logging.shutdown()
    os._exit(code)


class Guard:
    def __init__(self, agent: child.Child, limits: Limits) -> None:
        self._agent = agent
        self._limits = limits
        self._gone = asyncio.Event()
        self._lost: str | None = None
        self._killed: str | None = None
        self._client: LeaseClient | None = None
        self._held = False
        self._writer: asyncio.StreamWriter | None = None
        self._lease_task: asyncio.Task[None] | None = None
        self._last_beat = 0.0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        self._last_beat = loop.time()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._drain)
        self._reap()
        reader, self._writer = await _streams(self._agent)
        listening = asyncio.create_task(self._listen(reader))
        beating = asyncio.create_task(self._watch_beats())
        try:
            await self._gone.wait()
        finally:
            for task in (listening, beating, self._lease_task):
                if task is not None:
                    task.cancel()
        # What the agent started must not outlive the Lease.
        self._agent.kill_group()
        await self._release()
        return self._exit_code()

    def _exit_code(self) -> int:
        status = self._agent.status if self._agent.status is not None else int(ExitCode.TRY_AGAIN)
        if self._lost is not None and status != ExitCode.ANSWERED:
            return int(ExitCode.FENCED)
        log.info("agent ended", extra=logs.fields(status=status, killed=self._killed))
        return status

    def _reap(self) -> None:
        child.reap(self._agent)
        if self._agent.status is not None:
            self._gone.set()

    def _drain(self) -> None:
        log.info("told to stop, the agent drains", extra=logs.fields(seconds=self._limits.drain))
        self._agent.signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(self._limits.drain, self._kill, "the drain budget is over")

    def _kill(self, why: str) -> None:
        if self._agent.status is not None:
            return
        if self._killed is None:
            self._killed = why
            log.warning("agent killed", extra=logs.fields(reason=why))
        self._agent.kill_group()
        # An uninterruptible or stopped process may need the signal again once it wakes.
        asyncio.get_running_loop().call_later(_KILL_AGAIN_SECONDS, self._kill, why)

    def _lose(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
            self._say({"lost": reason})
            self._kill(f"ownership lost: {reason}")

    def _say(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.encode(message))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            try:
                message = wire.decode(line)
                if "beat" in message:
                    self._last_beat = asyncio.get_running_loop().time()
                elif "lease" in message and self._lease_task is None:
                    self._start_lease(wire.lease_order(message["lease"]))
            except wire.WireError as error:
                self._kill(f"protocol error on the pipe: {error}")
                return

    def _start_lease(self, order: wire.LeaseOrder) -> None:
        nonce = secrets.token_hex(8)
        holder = f"{os.environ.get(ENV_POD_UID, 'unknown')}/{nonce}"
        client = LeaseClient(order, holder=holder, pod=os.environ.get(ENV_POD_NAME, ""))
        self._client = client
        self._lease_task = asyncio.create_task(self._hold(client, order, nonce))

    async def _hold(self, client: LeaseClient, order: wire.LeaseOrder, nonce: str) -> None:
        try:
            await self._take(client)
            self._held = True
            self._say({"held": nonce})
            log.info("lease held", extra=logs.fields(lease=order.name))
            await self._keep(client, order)
        except (LeaseGone, LeaseTaken) as error:
            self._held = False
            self._lose(str(error))

    async def _take(self, client: LeaseClient) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TAKE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(client.take, loop.time())
            except (LeaseTaken, LeaseUnreachable) as error:
                if loop.time() > deadline:
                    raise LeaseTaken(f"not to be had in {_TAKE_SECONDS:.0f}s: {error}") from error
            await asyncio.sleep(_RETRY_SECONDS)

    async def _keep(self, client: LeaseClient, order: wire.LeaseOrder) -> None:
        """Renew until cancelled; an unreachable API server ends the run only after the grace."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        pause = float(order.renew)
        while True:
            await asyncio.sleep(pause)
            try:
                await asyncio.to_thread(client.renew, loop.time())
            except LeaseUnreachable as error:
                pause = min(float(order.renew), 2.0)
                silent = loop.time() - renewed
                log.warning("lease not renewed", extra=logs.fields(error=str(error), silent=round(silent, 1)))
                if silent > self._limits.control_plane_grace:
                    raise LeaseGone(f"API server unreachable for {silent:.0f}s") from error
            else:
                renewed, pause = loop.time(), float(order.renew)

    async def _watch_beats(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._limits.beat_check)
            silent = loop.time() - self._last_beat
            if silent > self._limits.beat:
                self._kill(f"no heartbeat for {silent:.0f}s")
                return

    async def _release(self) -> None:
        if self._client is None or not self._held:
            return
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await asyncio.to_thread(self._client.release, loop.time())
        except (LeaseGone, LeaseTaken, LeaseUnreachable, TimeoutError) as error:
            log.warning("lease not released", extra=logs.fields(error=str(error) or "timed out"))
        else:
            log.info("lease released")


async def _streams(agent: child.Child) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=wire.LINE_LIMIT)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(agent.read_fd, "rb", buffering=0)
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(agent.write_fd, "wb", buffering=0)
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
