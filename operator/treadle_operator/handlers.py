"""Kopf as informer, login and process shell. Handlers hand on what was seen and return nothing.

Each setting below answers something that was measured (01-architecture, "Kopf, as measured"): Kopf keeps no
annotation, finalizer, timer or daemon on our objects, and `on.event` handlers neither return a value nor
touch `patch` (either would make Kopf write, and drop later updates).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import kopf

from treadle_api.names import COMPONENT, GROUP, VERSION
from treadle_api.records import Json
from treadle_operator.kube_login import Login
from treadle_operator.selection import LIVING_PODS, OUR_PODS, UNFINISHED_RUNS

LOGIN_MINUTES: Final = 10
"""Kopf asks for credentials anew this often: bound tokens are rotated."""


class Sink(Protocol):
    def __call__(self, resource: str, obj: Json, *, gone: bool = False) -> None: ...


class _NoDiffBase(kopf.DiffBaseStorage):
    """Change handlers would need to know what changed; we have none, and building it costs half the CPU."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> Any:
        return {}

    def fetch(self, *, body: kopf.Body) -> None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: Any) -> None:
        pass


class _NoProgress(kopf.ProgressStorage):
    """Nothing is in progress: a pass of the work queue starts from what it sees."""

    def fetch(self, *, key: Any, body: kopf.Body) -> None:
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        pass

    def clear(self, *, essence: Any) -> Any:
        return essence


def watch_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    settings.persistence.finalizer = f"{GROUP}/never-used"
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.posting.reporting_component = COMPONENT
    settings.watching.label_selectors["", "v1", "pods"] = OUR_PODS
    settings.watching.field_selectors["", "v1", "pods"] = LIVING_PODS
    settings.watching.field_selectors[GROUP, VERSION, "runs"] = UNFINISHED_RUNS
    settings.watching.chunk_size = 500
    settings.watching.server_timeout = 450
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = (0.5, 1, 2, 4, 8)
    settings.queueing.error_delays = (1, 2, 5, 10, 20, 30)
    settings.process.ultimate_exiting_timeout = 60
    return settings


async def watch(
    sink: Sink,
    login: Callable[[], Awaitable[Login]],
    *,
    namespaces: Sequence[str],
    stop: asyncio.Event,
    started: Callable[[], None],
) -> None:
    """Hands every watched object to `sink` until `stop` is set; no namespaces: the whole cluster.

    Raises what ends Kopf (a watch that the API server refuses for good). `started` is called once Kopf has
    replaced the process's signal handlers, so that ours can be put back. When it stops, Kopf cancels every
    task that was made since: end yours first.
    """
    before = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=_registry(sink, login),
        settings=watch_settings(),
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
    )
    started()
    await kopf.run_tasks(tasks, ignored=before)


def _registry(sink: Sink, login: Callable[[], Awaitable[Login]]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: object) -> kopf.ConnectionInfo:
        now = await login()
        return kopf.ConnectionInfo(
            server=now.server,
            ca_path=now.ca_path,
            certificate_path=now.certificate_path,
            private_key_path=now.private_key_path,
            token=now.token,
            insecure=now.insecure,
            expiration=datetime.now(UTC) + timedelta(minutes=LOGIN_MINUTES),
        )

    def hand_on(group: str, plural: str) -> None:
        @kopf.on.event(group, "v1" if not group else VERSION, plural, registry=registry, id=plural)
        async def on_event(event: Any, **_: object) -> None:
            sink(plural, event["object"], gone=event["type"] == "DELETED")

    hand_on(GROUP, "agents")
    hand_on(GROUP, "threads")
    hand_on(GROUP, "runs")
    hand_on("", "pods")
    return registry
