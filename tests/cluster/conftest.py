"""One cluster for the whole run, a namespace for each test."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support import cluster as clusters
from support.cluster import Cluster
from support.kinds import installed
from support.release import treadle_release, watched_namespace

__all__ = ["installed", "treadle_release", "watched_namespace"]


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The local cluster with our images; started if need be, left running (`make cluster-down` ends it)."""
    return clusters.start()


@pytest.fixture
def kubeconfig(cluster: Cluster) -> Path:
    return cluster.kubeconfig


@pytest.fixture
async def namespace(cluster: Cluster, installed: Cluster) -> AsyncIterator[str]:
    """A fresh namespace that admits restricted pods alone, deleted after the test; our kinds are served."""
    name = f"test-{secrets.token_hex(5)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )
    # Before the controller has made it no pod is admitted.
    await cluster.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s", namespace=name)
    yield name
    await cluster.kubectl("delete", "namespace", name, "--wait=false")
