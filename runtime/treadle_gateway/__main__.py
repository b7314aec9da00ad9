"""`python -m treadle_gateway`: settings -> adapters -> server."""

import asyncio
import json
import logging
import os
import sys
from contextlib import AsyncExitStack

import uvicorn

from treadle_api.contract import ExitCode
from treadle_store.errors import StoreError
from treadle_store.pool import open_pool
from treadle_store.streams import open_reader

from .access import Guard
from .app import create_app
from .kubernetes_access import open_access
from .records import Records
from .services import Services
from .settings import Settings, SettingsError
from .slots import Slots

DRAIN_SECONDS = 10
"""Streams end at once on SIGTERM and their clients reconnect elsewhere; downloads get this long."""

MAX_DOWNLOADS = 8
"""Files on their way at once, each at most 32 MiB."""
MAX_OTHER_REQUESTS = 200
"""Connections beside the streams; more are refused by the server."""


class _JsonLines(logging.Formatter):
    """One JSON object a line: a constant sentence and its fields."""

    _plain = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}

    def format(self, record: logging.LogRecord) -> str:
        fields = {key: value for key, value in vars(record).items() if key not in self._plain}
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


async def serve(settings: Settings) -> None:
    """Runs until SIGTERM. Raises StoreRejected for a DSN that names no database.

    The store may be away at the start, or its schema not there yet: `/readyz` says so until it can be used.
    """
    async with AsyncExitStack() as stack:
        pool = await open_pool(
            settings.store_dsn, application="treadle-gateway", min_size=0, max_size=settings.store_connections
        )
        stack.push_async_callback(pool.close)
        reader = None
        if settings.stream_url:
            reader = await stack.enter_async_context(
                open_reader(settings.stream_url, max_connections=settings.max_streams)
            )
        access = await stack.enter_async_context(open_access())
        streams, downloads = Slots(settings.max_streams, "streams"), Slots(MAX_DOWNLOADS, "downloads")
        services = Services(Records(pool), Guard(access), reader, streams, downloads)
        config = uvicorn.Config(
            create_app(services),
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=settings.max_streams + MAX_OTHER_REQUESTS,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            lifespan="off",
        )
        await uvicorn.Server(config).serve()


def main() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        asyncio.run(serve(Settings.read(os.environ)))
    except (SettingsError, StoreError) as error:
        logging.getLogger(__name__).error("cannot start", extra={"error": str(error)})
        sys.exit(ExitCode.CONFIGURATION)


if __name__ == "__main__":
    main()
