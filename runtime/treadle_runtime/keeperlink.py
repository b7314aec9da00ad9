"""The agent's end of the pipe to its keeper."""

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Final

from treadle_runtime.keeper import spawn, wire

log = logging.getLogger(__name__)

_BEAT_SECONDS: Final = 1.0


class KeeperGone(Exception):
    """The keeper ended or told us that ownership is lost: nobody renews the Lease any more."""


class KeeperLink:
    """Use as `async with KeeperLink.open() as link:`; beats until it is left.

    `gone` is set, with the reason in `reason`, once the keeper ended or said `lost`.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._held: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self.gone = asyncio.Event()
        self.reason = ""

    @classmethod
    async def open(cls, environ: Mapping[str, str] = os.environ) -> "KeeperLink":
        """Connect to the keeper that started us.

        Raises KeeperGone where the environment names no pipe: an agent without a keeper holds no Lease.
        """
        try:
            read_fd, write_fd = int(environ[spawn.ENV_READ_FD]), int(environ[spawn.ENV_WRITE_FD])
        except (KeyError, ValueError) as error:
            raise KeeperGone(
                "no pipe to a keeper: start `python -m treadle_runtime.keeper`, which starts the agent"
            ) from error
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=wire.LINE_LIMIT)
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_fd, "rb", buffering=0)
        )
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(write_fd, "wb", buffering=0)
        )
        # Nothing the agent starts may speak to the keeper in its name.
        for descriptor in (read_fd, write_fd):
            os.set_inheritable(descriptor, False)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def __aenter__(self) -> "KeeperLink":
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._listen())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.close()

    def order(self, order: wire.LeaseOrder) -> None:
        """Tell the keeper which Lease to take."""
        self._send(
            {
                "lease": {
                    "name": order.name,
                    "namespace": order.namespace,
                    "duration": order.duration,
                    "renew": order.renew,
                }
            }
        )

    async def held(self) -> str:
        """The holder's nonce once the Lease is ours. Raises KeeperGone."""
        return await asyncio.shield(self._held)

    def release(self) -> None:
        """Say that nothing will be written any more; the Lease is emptied when we are gone."""
        self._send({"release": True})

    def _send(self, message: dict[str, object]) -> None:
        if not self._writer.is_closing():
            self._writer.write(wire.encode(message))

    async def _beat(self) -> None:
        count = 0
        while True:
            count += 1
            self._send({"beat": count})
            await asyncio.sleep(_BEAT_SECONDS)

    async def _listen(self) -> None:
        while line := await self._reader.readline():
            message = wire.decode(line)
            if "held" in message and not self._held.done():
                self._held.set_result(str(message["held"]))
            if "lost" in message:
                self._end(f"ownership lost: {message['lost']}")
                return
        self._end("the keeper ended")

    def _end(self, reason: str) -> None:
        log.warning("keeper gone", extra={"fields": {"reason": reason}})
        self.reason = reason
        self.gone.set()
        if not self._held.done():
            self._held.set_exception(KeeperGone(reason))
            # Nobody may be waiting: an exception never retrieved is no error of the program.
            self._held.exception()
