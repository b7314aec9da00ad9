"""A release from install to uninstall, beside the shared one: it watches its own namespace alone."""

import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.cluster import Cluster
from support.eventually import eventually
from support.release import NAME, NAMESPACE, Release, install

_CRDS = ("agents.treadle.dev", "threads.treadle.dev", "runs.treadle.dev")


@pytest.fixture
async def release(cluster: Cluster, treadle_release: Release, namespace: str) -> AsyncIterator[Release]:
    name = f"trial-{secrets.token_hex(3)}"
    yield await install(cluster, name, namespace, _values(namespace))
    await cluster.run("helm", "uninstall", name, "--namespace", namespace, "--ignore-not-found", seconds=120)
    # It had taken the CRDs over; they belong to the shared release again.
    owner = (f"meta.helm.sh/release-name={NAME}", f"meta.helm.sh/release-namespace={NAMESPACE}")
    await cluster.kubectl("annotate", "--overwrite", "crd", *_CRDS, *owner)


def _values(namespace: str, **more: Any) -> dict[str, Any]:
    return {
        "agentNamespaces": [namespace],
        "watchNamespaces": [namespace],
        "devStores": {"enabled": True, "persistence": {"enabled": True, "size": "256Mi"}},
        "operator": {"replicas": 1},
        "gateway": {"replicas": 1},
        **more,
    }


async def _helm_objects(cluster: Cluster, release: Release) -> list[str]:
    selector = f"--selector=app.kubernetes.io/instance={release.name}"
    kinds = "secret,serviceaccount,role,rolebinding,deployment,statefulset,job,service,networkpolicy"
    wide = "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding"
    mine = await cluster.kubectl("get", kinds, selector, "--output=name", namespace=release.namespace)
    return (mine + await cluster.kubectl("get", wide, selector, "--output=name")).split()


async def test_a_release_lives_from_install_to_uninstall(cluster: Cluster, release: Release) -> None:
    passwords = await release.secret("passwords")
    given = await cluster.get("secret", "treadle-store", namespace=release.namespace)
    assert await _helm_objects(cluster, release)

    changed = _values(release.namespace, operator={"replicas": 2})
    await install(cluster, release.name, release.namespace, changed)
    assert await release.secret("passwords") == passwords
    again = await cluster.get("secret", "treadle-store", namespace=release.namespace)
    assert again["data"] == given["data"]
    jobs = await cluster.get("job", namespace=release.namespace)
    assert [job["status"].get("succeeded") for job in jobs["items"]] == [1]

    words = ("uninstall", release.name, "--namespace", release.namespace, "--wait", "--timeout=120s")
    await cluster.run("helm", *words, seconds=150)
    assert await _helm_objects(cluster, release) == []

    async def claims_go() -> bool:
        claims = await cluster.get("persistentvolumeclaims", namespace=release.namespace)
        return all("deletionTimestamp" in claim["metadata"] for claim in claims["items"])

    # The StatefulSets' controller deletes them after its StatefulSets are gone.
    await eventually(claims_go, "the volume claims are deleted", within=60, every=0.5)
    kept = json.loads(await cluster.kubectl("get", "crd", *_CRDS, "--output=json"))
    assert [crd["metadata"].get("deletionTimestamp") for crd in kept["items"]] == [None] * 3
