"""How a run ended, as a pure function of what came out of the graph: outcome, reason, message.

No clock, no loop, no LangGraph: exceptions are judged by the names of their classes and by an HTTP status
they may carry, so that every provider's error is told apart without importing its client.

| what came out | verdict |
|---|---|
| the graph finished | success · Delivered or NothingToDeliver |
| ... and the declared delivery is not there | error · CoverageFailed |
| GraphRecursionError | error · RecursionLimit |
| cancel was accepted | cancelled · Cancelled |
| WorkspaceError | error · WorkspaceLimitExceeded |
| a model call: HTTP 400, 401, 403, 404, 422 | error · ModelRejected |
| a model call: HTTP 408, 429, 5xx, no answer in time, no connection | error · ModelUnavailable (`passes`) |
| anything else that the graph raised | error · AgentError |
"""

import re
from dataclasses import dataclass
from typing import Final

from treadle_api.contract import MESSAGE_LIMIT
from treadle_api.reasons import Reason
from treadle_api.records import RunStatus


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as far as a verdict needs it. `classes` are the names of its method resolution order."""

    classes: tuple[str, ...]
    text: str
    http_status: int | None = None
    from_model: bool = False
    """Whether it was a model call that raised it; a tool's HTTP error is the graph's own affair."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a settlement says: `message` is one readable sentence of at most 512 characters."""

    outcome: RunStatus
    reason: Reason
    message: str

    @property
    def passes(self) -> bool:
        """Whether the cause may be gone a while later: then another attempt is worth more than this end."""
        return self.reason is Reason.MODEL_UNAVAILABLE


_SECRET: Final = re.compile(
    r"(?i)(bearer\s+\S+|sk-[\w-]{4,}|(?:api[_-]?key|token|password|secret)[\"']?\s*[=:]\s*[\"']?[^\s\"',}]+"
    r"|://[^/\s:@]+:[^/\s@]+@)"
)
_SPACE: Final = re.compile(r"\s+")

_TIMEOUTS: Final = frozenset({"TimeoutError", "APITimeoutError", "ReadTimeout", "ConnectTimeout"})
_CONNECTIONS: Final = frozenset({"APIConnectionError", "ConnectError", "ConnectionError"})


def describe(error: BaseException, *, from_model: bool = False) -> Failure:
    """The exception as a value. An HTTP status is looked for along its causes, at most 8 deep."""
    classes = tuple(kind.__name__ for kind in type(error).__mro__ if kind is not object)
    status: int | None = None
    cause: BaseException | None = error
    for _ in range(8):
        if cause is None or status is not None:
            break
        found = getattr(cause, "status_code", None)
        status = found if isinstance(found, int) else None
        cause = cause.__cause__ or cause.__context__
    return Failure(classes, str(error) or type(error).__name__, status, from_model)


def readable(text: str) -> str:
    """`text` on one line, without what looks like a credential, at most 512 characters."""
    line = _SPACE.sub(" ", _SECRET.sub("[removed]", text)).strip()
    return line if len(line) <= MESSAGE_LIMIT else line[: MESSAGE_LIMIT - 1] + "…"


def of_failure(failure: Failure) -> Verdict:
    """The verdict on what the graph raised."""
    if "GraphRecursionError" in failure.classes:
        return _error(
            Reason.RECURSION_LIMIT,
            "the graph did not end within its recursion limit; raise config.recursionLimit or give the "
            "agent a stop condition",
        )
    if "WorkspaceError" in failure.classes:
        return _error(Reason.WORKSPACE_LIMIT_EXCEEDED, failure.text)
    reason, headline = _of_model(failure) if failure.from_model else (Reason.AGENT_ERROR, "")
    headline = headline or (failure.classes[0] if failure.classes else "error")
    return _error(reason, f"{headline}: {failure.text}" if failure.text else headline)


def of_success(*, requirement: str, coverage: str, presented: int, missing: tuple[str, ...]) -> Verdict:
    """The verdict on a graph that finished, given the delivery's coverage (`delivery.Coverage`)."""
    if coverage == "False":
        wanted = ", ".join(missing) or "at least one presented or matching file"
        return _error(
            Reason.COVERAGE_FAILED, f"delivery.requirement {requirement} is not met: missing {wanted}"
        )
    if presented == 0:
        return Verdict(RunStatus.SUCCESS, Reason.NOTHING_TO_DELIVER, "finished; no file was presented")
    files = "1 file" if presented == 1 else f"{presented} files"
    return Verdict(RunStatus.SUCCESS, Reason.DELIVERED, f"finished; {files} presented")


def of_cancel(action: str) -> Verdict:
    """The verdict on a run that stopped because it was asked to."""
    return Verdict(RunStatus.CANCELLED, Reason.CANCELLED, readable(f"stopped on request ({action})"))


def _error(reason: Reason, message: str) -> Verdict:
    return Verdict(RunStatus.ERROR, reason, readable(message))


def _of_model(failure: Failure) -> tuple[Reason, str]:
    """Reason and headline of a model call's error; an empty headline where its own class says it best."""
    status = failure.http_status
    if status in (401, 403):
        return (
            Reason.MODEL_REJECTED,
            f"the model's provider refused our credentials (HTTP {status}); check the model's API key",
        )
    if status == 404:
        return (
            Reason.MODEL_REJECTED,
            "the model's provider knows no such model or path (HTTP 404); check model.name and model.baseURL",
        )
    if status == 429:
        return (
            Reason.MODEL_UNAVAILABLE,
            "the model's provider limits our rate or quota (HTTP 429); try later or raise the quota",
        )
    if status == 408 or (status is None and _TIMEOUTS.intersection(failure.classes)):
        return (
            Reason.MODEL_UNAVAILABLE,
            "the model did not answer in time; try again later, or raise timeout in model.parameters",
        )
    if status is not None and status >= 500:
        return Reason.MODEL_UNAVAILABLE, f"the model's provider failed (HTTP {status}); try again later"
    if status is not None and 400 <= status < 500:
        return (
            Reason.MODEL_REJECTED,
            f"the model's provider refused the request (HTTP {status}); check model.parameters",
        )
    if _CONNECTIONS.intersection(failure.classes):
        return (
            Reason.MODEL_UNAVAILABLE,
            "the model's provider could not be reached; check model.baseURL and the network policy",
        )
    return Reason.AGENT_ERROR, ""
