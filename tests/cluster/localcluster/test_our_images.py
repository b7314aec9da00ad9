"""What the local cluster promises to every other test: our images run as restricted pods, DNS, limits."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from support.cluster import Cluster, KubectlFailed
from support.eventually import eventually

RESTRICTED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(name: str, image: str, command: list[str], **container: Any) -> dict[str, Any]:
    """A pod of one container under the restricted standard, with a writable /tmp and /data alone."""
    writable = ["/tmp", "/data"]
    one = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": path.strip("/"), "mountPath": path} for path in writable],
        **container,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [one],
            "securityContext": {"fsGroup": 65532},
            "volumes": [{"name": path.strip("/"), "emptyDir": {}} for path in writable],
        },
    }


async def ended(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """The terminated state of the pod's container, once there is one."""

    async def terminated() -> dict[str, Any] | None:
        status = (await cluster.get("pod", name, namespace=namespace))["status"]
        (one,) = status.get("containerStatuses") or [{}]
        state: dict[str, Any] | None = one.get("state", {}).get("terminated")
        return state

    state = await eventually(terminated, f"the end of pod {name}", within=90, every=0.3)
    assert state is not None
    return state


IMPORTS = {
    "operator": "kopf, kubernetes.client, starlette, treadle_operator, treadle_gateway, treadle_store",
    "runtime": "langgraph.graph, langchain, asyncpg, redis, pykube, treadle_runtime, treadle_store",
}


@pytest.mark.parametrize("key", IMPORTS)
async def test_an_image_of_ours_runs_its_imports_as_a_restricted_pod(
    cluster: Cluster, namespace: str, key: str
) -> None:
    program = (
        f"import {IMPORTS[key]}; import os; print(os.getuid(), os.environ.get('LANGGRAPH_STRICT_MSGPACK'))"
    )
    await cluster.apply(pod("imports", cluster.image(key), ["python", "-c", program]), namespace=namespace)
    state = await ended(cluster, namespace, "imports")
    said = await cluster.kubectl("logs", "imports", namespace=namespace)
    assert state["exitCode"] == 0, said
    assert said.split() == ["65532", "true" if key == "runtime" else "None"]


@pytest.mark.parametrize("key", ["operator", "runtime"])
async def test_an_image_of_ours_brings_its_bytecode(cluster: Cluster, namespace: str, key: str) -> None:
    program = (
        "import pathlib, sys, importlib.util as u; "
        "print([str(p) for r in ('/opt/code', '/opt/treadle/lib') for p in pathlib.Path(r).rglob('*.py') "
        "if not pathlib.Path(u.cache_from_source(str(p))).exists()][:5])"
    )
    await cluster.apply(pod("bytecode", cluster.image(key), ["python", "-c", program]), namespace=namespace)
    await ended(cluster, namespace, "bytecode")
    assert (await cluster.kubectl("logs", "bytecode", namespace=namespace)).strip() == "[]"


async def test_the_store_image_serves_postgres_and_redis_with_a_password(
    cluster: Cluster, namespace: str
) -> None:
    image = cluster.image("devstore")
    password = "quite \\ a \"secret'"
    environment = [
        {"name": name, "value": password} for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "PGPASSWORD")
    ]
    environment += [{"name": "POSTGRES_DB", "value": "treadle"}, {"name": "REDISCLI_AUTH", "value": password}]
    for mode in ("postgres", "redis"):
        store = pod(mode, image, ["/usr/local/bin/entry"], args=[mode], env=environment)
        await cluster.apply(store, namespace=namespace)

    async def asked(name: str, *words: str) -> str:
        with contextlib.suppress(KubectlFailed):  # not listening yet
            return (await cluster.kubectl("exec", name, "--", *words, namespace=namespace)).strip()
        return ""

    query = ("psql", "-h", "127.0.0.1", "-U", "postgres", "-d", "treadle", "-Atc", "select 6 * 7")
    assert (
        await eventually(lambda: asked("postgres", *query), "an answer of Postgres", within=90, every=0.5)
        == "42"
    )
    assert (
        await eventually(lambda: asked("redis", "redis-cli", "ping"), "Redis", within=60, every=0.5) == "PONG"
    )


async def test_a_store_without_a_password_is_not_started(cluster: Cluster, namespace: str) -> None:
    store = pod("postgres", cluster.image("devstore"), ["/usr/local/bin/entry"], args=["postgres"])
    await cluster.apply(store, namespace=namespace)
    assert (await ended(cluster, namespace, "postgres"))["exitCode"] == 64
    assert "POSTGRES_PASSWORD" in await cluster.kubectl("logs", "postgres", namespace=namespace)


async def test_a_service_is_found_by_its_name(cluster: Cluster, namespace: str) -> None:
    program = "import socket; print(socket.gethostbyname('kubernetes.default.svc.cluster.local'))"
    await cluster.apply(pod("dns", cluster.image("runtime"), ["python", "-c", program]), namespace=namespace)
    await ended(cluster, namespace, "dns")
    address = (await cluster.get("service", "kubernetes", namespace="default"))["spec"]["clusterIP"]
    assert (await cluster.kubectl("logs", "dns", namespace=namespace)).strip() == address


async def test_a_pod_over_its_memory_limit_is_killed_for_it(cluster: Cluster, namespace: str) -> None:
    program = "x = bytearray(256 << 20)"
    limits = {"limits": {"memory": "64Mi", "cpu": "500m"}}
    hungry = pod("hungry", cluster.image("runtime"), ["python", "-c", program], resources=limits)
    await cluster.apply(hungry, namespace=namespace)
    state = await ended(cluster, namespace, "hungry")
    assert (state["reason"], state["exitCode"]) == ("OOMKilled", 137)


async def test_a_claim_of_the_default_storage_class_is_written_by_an_ordinary_user(
    cluster: Cluster, namespace: str
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "kept"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}},
    }
    writer = pod("writer", cluster.image("runtime"), ["sh", "-c", "echo kept > /data/file && cat /data/file"])
    writer["spec"]["volumes"][1] = {"name": "data", "persistentVolumeClaim": {"claimName": "kept"}}
    await cluster.apply(claim, writer, namespace=namespace)
    assert (await ended(cluster, namespace, "writer"))["exitCode"] == 0
    assert (await cluster.kubectl("logs", "writer", namespace=namespace)).strip() == "kept"
