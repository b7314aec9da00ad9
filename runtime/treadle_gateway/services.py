"""What a request handler works with."""

import re
from dataclasses import dataclass, field

from starlette.requests import Request

from treadle_store.run_views import RunView
from treadle_store.streams import Reader

from .access import Guard
from .follow import Pace
from .problems import Problem
from .records import Records
from .slots import Slots

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Services:
    """One per process. `reader` is None where no stream is configured: then the gateway polls."""

    records: Records
    guard: Guard
    reader: Reader | None
    streams: Slots
    downloads: Slots
    """Each holds a whole file in memory."""
    pace: Pace = field(default_factory=Pace)
    heartbeat_seconds: float = 15.0
    send_seconds: float = 30.0
    """How long a client may take nothing before its stream is closed."""


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


async def permitted_run(request: Request) -> RunView:
    """The run that the path names, for a caller who may get it.

    Raises Problem: 400, 401, 403, 404, 503. Who may not get runs at all learns nothing about which exist.
    """
    given = services(request)
    identity = await given.guard.identify(request.headers.get("authorization"))
    namespace, name = request.path_params["namespace"], request.path_params["run"]
    for what, value in (("namespace", namespace), ("run", name)):
        if not _NAME.fullmatch(value):
            raise Problem(
                400, "BadName", f"the {what} in the path must be a Kubernetes name or uid, not {value[:80]!r}"
            )
    run = await given.records.find(namespace, name)
    await given.guard.require_run(identity, namespace, run.name if run else "")
    if run is None:
        detail = (
            f"namespace {namespace} has no admitted run {name}: see kubectl get run {name} -n {namespace}"
        )
        raise Problem(404, "RunNotFound", detail)
    return run
