"""The chart, installed once for all cluster tests, and how a test's namespace is made ready for agents."""

import asyncio
import base64
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest
import pytest_asyncio

from support.cluster import Cluster, KubectlFailed
from support.eventually import eventually

CHART = Path(__file__).resolve().parents[2] / "charts" / "treadle"
NAME = "treadle"
NAMESPACE = "treadle-system"
READY_SECONDS = 300
WATCHED = [f"treadle-agents-{i}" for i in range(1, 5)]
"""As many tests can run at the same time under the shared release."""
_LEFT_BY_TESTS = "runs,threads,agents,pods,leases,jobs,configmaps,secrets"


@dataclass(frozen=True)
class Release:
    """An installed chart. Its full name is the release's own where that contains `treadle`."""

    cluster: Cluster
    name: str
    namespace: str

    @property
    def fullname(self) -> str:
        return self.name if "treadle" in self.name else f"{self.name}-treadle"

    async def secret(self, suffix: str) -> dict[str, str]:
        """The data of the release's Secret `<fullname>-<suffix>`, decoded."""
        found = await self.cluster.get("secret", f"{self.fullname}-{suffix}", namespace=self.namespace)
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    async def admit(self, namespace: str) -> None:
        """Makes a namespace ready for agents, as `agentNamespaces` does. No operator watches it."""
        words = ("--show-only", "templates/agents/access.yaml", "--set", f"agentNamespaces={{{namespace}}}")
        access = await self.cluster.run("helm", "template", self.name, str(CHART), *_DEV_STORES, *words)
        await self.cluster.kubectl("apply", "--filename", "-", stdin=access)
        store, stream = await self.secret("store-access"), await self.secret("stream-access")
        await self.cluster.apply(
            _secret("treadle-store", {"dsn": store["agent-dsn"]}),
            _secret("treadle-stream", {"url": stream["agent-url"]}),
            namespace=namespace,
        )


_DEV_STORES = ("--set", "devStores.enabled=true")


def _secret(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": dict(data)}


def images(cluster: Cluster) -> dict[str, Any]:
    """The chart's values for the images that this cluster holds."""
    keys = {"operator": "operator", "runtime": "runtime", "devStore": "devstore"}
    split = {ours: cluster.image(theirs).rpartition(":") for ours, theirs in keys.items()}
    return {name: {"repository": repository, "tag": tag} for name, (repository, _, tag) in split.items()}


async def install(
    cluster: Cluster, name: str, namespace: str, values: Mapping[str, Any], *, wait: bool = True
) -> Release:
    """`helm upgrade --install`; takes over CRDs that were applied by hand. Ready programs when it returns."""
    words = ["--take-ownership", "--create-namespace", "--values", "-", "--namespace", namespace]
    if wait:
        words += ["--wait", "--wait-for-jobs", f"--timeout={READY_SECONDS}s"]
    await cluster.run(
        *("helm", "upgrade", "--install", name, str(CHART), *words),
        stdin=json.dumps({"images": images(cluster), "devStores": {"enabled": True}, **values}),
        seconds=READY_SECONDS + 60,
    )
    return Release(cluster, name, namespace)


def _lock_file(what: str) -> TextIO:
    return (Path(tempfile.gettempdir()) / f"treadle-{what}-{os.getuid()}.lock").open("w")


@asynccontextmanager
async def one_at_a_time() -> AsyncIterator[None]:
    """Held by whoever changes the shared release: pytest's processes take turns."""
    with _lock_file("release") as file:
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
        yield


@asynccontextmanager
async def free_namespace(cluster: Cluster) -> AsyncIterator[str]:
    """One of WATCHED that no other test uses; empty before and after."""
    with ExitStack() as stack:
        files = {name: stack.enter_context(_lock_file(name)) for name in WATCHED}

        async def take() -> str | None:
            for name, file in files.items():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                return name
            return None

        name = await eventually(take, "a watched namespace is free", within=READY_SECONDS, every=0.5)
        assert name is not None
        await _empty(cluster, name)
        yield name
        await _empty(cluster, name)


async def _empty(cluster: Cluster, namespace: str) -> None:
    """Runs first: their finalizer is the operator's. What belongs to the chart stays."""
    kept = ("--field-selector=metadata.name!=kube-root-ca.crt", "--selector=!helm.sh/chart")
    for kinds in ("runs", "threads", _LEFT_BY_TESTS):
        words = ("delete", kinds, *kept, "--ignore-not-found", "--timeout=90s")
        await cluster.kubectl(*words, namespace=namespace, seconds=120)


@pytest.fixture
async def watched_namespace(cluster: Cluster, treadle_release: Release) -> AsyncIterator[str]:
    """A namespace whose Runs the shared release's operator executes; empty."""
    async with free_namespace(cluster) as name:
        yield name


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def treadle_release(cluster: Cluster) -> Release:
    """The shared release."""
    return await shared_release(cluster)


async def shared_release(cluster: Cluster) -> Release:
    """The chart with its development stores, installed where it is not; stays when the tests end.

    It watches WATCHED alone, or it would act on the Runs of tests that bring their own operator.
    Gateway, Postgres and Redis are reachable on 127.0.0.1 by the cluster's port mappings.
    """
    values: dict[str, Any] = {
        "agentNamespaces": WATCHED,
        "watchNamespaces": WATCHED,
        "createNamespaces": True,
        "gateway": {"service": {"type": "NodePort", "nodePort": 30080}},
        "devStores": {"enabled": True, "postgres": {"nodePort": 30432}, "redis": {"nodePort": 30379}},
    }
    values["global"] = {"digest": _digest({**values, "images": images(cluster)})}
    async with one_at_a_time():
        if await _is_there(cluster, values["global"]["digest"]):
            return Release(cluster, NAME, NAMESPACE)
        return await install(cluster, NAME, NAMESPACE, values)


def _digest(values: Mapping[str, Any]) -> str:
    """Of the chart and of what it is given: an equal release need not be upgraded."""
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for file in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(file.read_bytes())
    return digest.hexdigest()


async def _is_there(cluster: Cluster, digest: str) -> bool:
    words = (NAME, "--namespace", NAMESPACE, "--output", "json")
    try:
        status = json.loads(await cluster.run("helm", "status", *words))
        values = json.loads(await cluster.run("helm", "get", "values", *words))
    except KubectlFailed:
        return False
    if status["info"]["status"] != "deployed" or values.get("global", {}).get("digest") != digest:
        return False
    for program in ("operator", "gateway"):
        ready = ("rollout", "status", f"deployment/{NAME}-{program}", f"--timeout={READY_SECONDS}s")
        await cluster.kubectl(*ready, namespace=NAMESPACE, seconds=READY_SECONDS + 10)
    return True
