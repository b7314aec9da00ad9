"""Runs on the installed chart, seen from outside: what the API server shows, and what the store holds."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from support.cluster import Cluster
from support.eventually import eventually
from support.release import Release
from support.stored_runs import StoredRuns
from treadle_api.records import RunUID, ThreadID
from treadle_operator.kube import Kube
from treadle_operator.kube_login import Credentials
from treadle_store.pool import open_pool

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 150.0
"""Seconds for what takes three on an idle machine."""


@dataclass(frozen=True, slots=True)
class Played:
    """A Run and its place in the store."""

    name: str
    run_id: RunUID
    thread_id: ThreadID


@dataclass
class Stage(StoredRuns):
    """A namespace of the release, with the operator's view of the store."""

    cluster: Cluster
    kube: Kube
    namespace: str

    async def apply(self, *objects: dict[str, Any]) -> None:
        await self.cluster.apply(*objects, namespace=self.namespace)

    async def apply_large(self, *objects: dict[str, Any]) -> None:
        """On the server's side: no copy of the object in an annotation, which may have 256 KiB."""
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        words = ("apply", "--server-side", "--filename", "-")
        await self.cluster.kubectl(*words, namespace=self.namespace, stdin=listed)

    async def kubectl(self, *words: str, seconds: float = 60) -> str:
        return await self.cluster.kubectl(*words, namespace=self.namespace, seconds=seconds)

    async def run(self, name: str) -> dict[str, Any]:
        return await self.kube.get("runs", self.namespace, name)

    async def reaches(
        self, name: str, phase: str, reason: str | None = None, *, within: float = PATIENCE
    ) -> dict[str, Any]:
        """Waits until the Run shows that phase (and reason of Succeeded); the whole object."""
        seen: dict[str, Any] = {}

        async def there() -> bool:
            seen.update(await self.run(name))
            status = seen.get("status", {})
            right = reason is None or condition(seen, "Succeeded").get("reason") == reason
            return bool(status.get("phase") == phase and right)

        try:
            await eventually(there, f"Run {name} is {phase}/{reason}", within=within, every=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(seen.get('status'), indent=1)}") from None
        return seen

    async def succeeds(self, name: str, *, within: float = PATIENCE) -> dict[str, Any]:
        """Waits until the Run has ended, and that it ended well; the whole object."""

        async def ended() -> dict[str, Any] | None:
            run = await self.run(name)
            return run if condition(run, "Finished").get("status") == "True" else None

        run = await eventually(ended, f"Run {name} ends", within=within, every=0.1)
        assert run is not None
        said = condition(run, "Succeeded")
        assert said["status"] == "True", f"{name}: {said['reason']}: {said['message']}"
        return run

    async def stored(self, name: str) -> Played:
        """Waits until the Run is in the store."""
        run_id = RunUID((await self.run(name))["metadata"]["uid"])
        query = "SELECT thread_id FROM treadle.runs WHERE run_id = $1"

        async def probe() -> ThreadID | None:
            found: ThreadID | None = await self.operator.fetchval(query, run_id)
            return found

        thread = await eventually(probe, f"Run {name} is admitted", within=PATIENCE, every=0.1)
        assert thread is not None
        return Played(name, run_id, thread)

    async def pods(self, name: str) -> list[dict[str, Any]]:
        """The pods of the Run's attempts."""
        found = [
            pod
            async for pod in self.kube.list_objects("pods", self.namespace)
            if pod["metadata"].get("labels", {}).get("treadle.dev/run-name") == name
        ]
        return sorted(found, key=lambda pod: int(pod["metadata"]["labels"]["treadle.dev/attempt"]))


@asynccontextmanager
async def open_stage(cluster: Cluster, release: Release, namespace: str) -> AsyncIterator[Stage]:
    """The store is reached by the node port that the cluster maps to the host."""
    dsn = urlsplit((await release.secret("store-access"))["operator-dsn"])
    port = cluster.exports["TREADLE_POSTGRES_PORT"]
    outside = dsn._replace(netloc=f"{dsn.username}:{dsn.password}@127.0.0.1:{port}").geturl()
    kube = Kube(Credentials(str(cluster.kubeconfig)))
    pool = await open_pool(outside, application="test-e2e", max_size=2)
    try:
        await kube.open()
        yield Stage(pool, cluster, kube, namespace)
    finally:
        await kube.close()
        pool.terminate()


def condition(shown: dict[str, Any], kind: str) -> dict[str, Any]:
    """One condition of an object; empty where it says nothing."""
    listed: list[dict[str, Any]] = shown.get("status", {}).get("conditions", [])
    return next((each for each in listed if each["type"] == kind), {})


def example(name: str) -> list[dict[str, Any]]:
    """The objects of an example's folder."""
    files = sorted((EXAMPLES / name).glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The one object of that kind."""
    (found,) = [each for each in objects if each["kind"] == kind]
    return found
