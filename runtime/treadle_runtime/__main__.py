"""`python -m treadle_runtime`: the agent, started by its keeper. The exit code says what is wanted next."""

import asyncio
import logging
import os
import signal
import sys

from treadle_api.contract import ExitCode
from treadle_api.reasons import Reason
from treadle_runtime import logs, process
from treadle_runtime.endings import AttemptOver, Misconfigured
from treadle_runtime.keeperlink import KeeperGone, KeeperLink
from treadle_runtime.settings import Settings, SettingsError
from treadle_runtime.termination import explain
from treadle_store.errors import SchemaMismatch, StaleToken, StoreError, StoreFailedOver

log = logging.getLogger("treadle.agent")

_DEFAULTS = {
    "LANGGRAPH_STRICT_MSGPACK": "true",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
}
_REASONS: dict[type[StoreError], Reason] = {
    SchemaMismatch: Reason.SCHEMA_MISMATCH,
    StoreFailedOver: Reason.STORE_FAILED_OVER,
}


async def _run(settings: Settings) -> ExitCode:
    async with await KeeperLink.open() as link:
        # Imported only now: the keeper already hears our heartbeat while the store's client is read.
        from treadle_runtime.session import Session

        session = Session(settings, link)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, session.stop, signal.Signals(number).name)
        try:
            return await session.run()
        except Misconfigured as error:
            log.error("attempt cannot be executed", extra=logs.fields(reason=error.reason, error=str(error)))
            explain(error.reason, str(error))
            return ExitCode.CONFIGURATION
        except AttemptOver as error:
            log.info("attempt over", extra=logs.fields(code=int(error.code), why=str(error)))
            link.release()
            return error.code


def main(runner: asyncio.Runner) -> int:
    # Read by LangGraph and LangSmith when they are imported; the image sets the first one, too.
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    logs.set_up()
    process.hide_environment()
    process.end_with_parent()
    log.info("agent starts", extra=logs.fields(cpu_seconds=process.cpu_seconds()))
    try:
        settings = Settings.from_environment(os.environ)
        return int(runner.run(_run(settings)))
    except SettingsError as error:
        return _unanswered(ExitCode.CONFIGURATION, Reason.CONFIGURATION_INVALID, error)
    except StaleToken as error:
        log.warning("fenced", extra=logs.fields(error=str(error)))
        return int(ExitCode.FENCED)
    except KeeperGone as error:
        log.warning("keeper gone", extra=logs.fields(error=str(error)))
        return int(ExitCode.TRY_AGAIN)
    except StoreError as error:
        return _unanswered(ExitCode.TRY_AGAIN, _REASONS.get(type(error), Reason.STORE_UNAVAILABLE), error)


def _unanswered(code: ExitCode, reason: Reason, error: Exception) -> int:
    log.error(
        "agent ends without an answer", extra=logs.fields(code=int(code), reason=reason, error=str(error))
    )
    explain(reason, str(error))
    return int(code)


if __name__ == "__main__":
    # Never closed: that would wait for tasks and threads that the graph left behind, and some never end.
    endless = asyncio.Runner()
    status = main(endless)
    logging.shutdown()
    sys.stdout.flush()
    # Tearing down LangGraph's modules takes longer than a step of the run; there is nothing left to save.
    os._exit(status)
