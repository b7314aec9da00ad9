"""The gateway's questions put to a real API server."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.access_contract import CONTRACT, AccessWorld
from support.cluster import Cluster
from treadle_gateway.access import AccessUnavailable, Identity
from treadle_gateway.kubernetes_access import AUDIENCE, open_access


def role(name: str, runs: list[str]) -> list[dict[str, Any]]:
    """A ServiceAccount that may get these runs, all of them where none is named."""
    rule: dict[str, Any] = {"apiGroups": ["treadle.dev"], "resources": ["runs"], "verbs": ["get"]}
    if runs:
        rule["resourceNames"] = runs
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": name}, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name}],
        },
    ]


@pytest.fixture
async def world(cluster: Cluster, namespace: str, kubeconfig: Path) -> AsyncIterator[AccessWorld]:
    await cluster.apply(*role("reader", []), *role("narrow", ["one"]), namespace=namespace)

    async def token(account: str, *audience: str) -> str:
        flags = ("--audience", *audience) if audience else ()
        return (await cluster.kubectl("create", "token", account, *flags, namespace=namespace)).strip()

    async with open_access(os.fspath(kubeconfig)) as access:
        yield AccessWorld(
            access,
            namespace,
            reader=await token("reader", AUDIENCE),
            plain=await token("reader"),
            narrow=await token("narrow", AUDIENCE),
            stranger=await token("default", AUDIENCE),
            foreign=await token("reader", "somebody-else"),
        )


async def test_kubernetes_answers_as_the_contract_says(world: AccessWorld) -> None:
    for clause in CONTRACT:
        await clause(world)


async def test_an_api_server_that_is_away_is_neither_yes_nor_no(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}],"
        " contexts: [{name: c, context: {cluster: c, user: u}}]}"
    )
    async with open_access(os.fspath(config)) as access:
        with pytest.raises(AccessUnavailable):
            await access.authenticate("t")
        with pytest.raises(AccessUnavailable):
            await access.may_get_run(Identity("a", "", ()), "team", "one")
