"""The chart judges its values, and what it renders is taken by the API server."""

import re
from typing import Any

import pytest
import yaml

from support.cluster import Cluster, KubectlFailed
from support.release import CHART
from treadle_store.stream_acl import SERVER_SETTINGS, reader_rules

DEV = ("--set", "devStores.enabled=true")


async def _render(cluster: Cluster, *words: str, namespace: str = "default") -> list[dict[str, Any]]:
    text = await cluster.run("helm", "template", "trial", str(CHART), "--namespace", namespace, *words)
    return [document for document in yaml.safe_load_all(text) if document]


async def test_helm_finds_nothing_to_criticise(cluster: Cluster) -> None:
    out = await cluster.run("helm", "lint", "--strict", str(CHART), *DEV, "--set", "agentNamespaces={demo}")
    assert "0 chart(s) failed" in out


@pytest.mark.req("R91")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "Treadle needs a Postgres: set postgres.existingSecret"),
        (
            (*DEV, "--set", "postgres.existingSecret=x"),
            "set one of devStores.enabled and postgres.existingSecret",
        ),
        ((*DEV, "--set", "gateway.replicas=two"), "at '/gateway/replicas': got string, want integer"),
        ((*DEV, "--set", "operator.replicas=0"), "at '/operator/replicas': minimum: got 0, want 1"),
        ((*DEV, "--set", "operater.replicas=1"), "additional properties 'operater' not allowed"),
        ((*DEV, "--set", "agentNamespaces={Big_One}"), "at '/agentNamespaces/0': 'Big_One' does not match"),
        ((*DEV, "--set", "agentNamespaces=demo"), "at '/agentNamespaces': got string, want array"),
        ((*DEV, "--set", "operator.logLevel=loud"), "at '/operator/logLevel': value must be one of"),
        (
            (*DEV, "--set", "agentNamespaces={a},watchNamespaces={b}"),
            'agentNamespaces has "a", which watchNamespaces leaves out',
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_bad_value_is_refused_with_a_sentence(
    cluster: Cluster, words: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(KubectlFailed, match=re.escape(sentence)):
        await _render(cluster, *words)


@pytest.mark.parametrize(
    "words",
    [
        (*DEV,),
        (
            *DEV,
            "--set",
            "devStores.persistence.enabled=true",
            "--set",
            "devStores.persistence.storageClassName=x",
        ),
        (*DEV, "--set", "gateway.enabled=false", "--set", "operator.replicas=1"),
        ("--set", "postgres.existingSecret=record"),
        ("--set", "postgres.existingSecret=record,redis.existingSecret=wire,images.pullSecrets={registry}"),
        (*DEV, "--set", "gateway.service.type=NodePort,gateway.service.nodePort=31999"),
    ],
    ids=lambda words: " ".join(words),
)
async def test_what_is_rendered_is_taken_by_the_api_server(
    cluster: Cluster, namespace: str, words: tuple[str, ...]
) -> None:
    words = (*words, "--set", f"agentNamespaces={{{namespace}}}", "--set", "crds.install=false")
    text = await cluster.run("helm", "template", "trial", str(CHART), "--namespace", namespace, *words)
    out = await cluster.kubectl(
        "apply", "--dry-run=server", "--filename", "-", namespace=namespace, stdin=text
    )
    assert "deployment.apps/trial-treadle-operator created (server dry run)" in out
    assert "Warning" not in out


async def test_a_service_monitor_is_made_on_request(cluster: Cluster) -> None:
    kinds = [o["kind"] for o in await _render(cluster, *DEV, "--set", "serviceMonitor.enabled=true")]
    assert kinds.count("ServiceMonitor") == 1


async def test_agent_namespaces_can_be_created_and_are_kept(cluster: Cluster) -> None:
    words = ("--set", "agentNamespaces={a,b}", "--set", "createNamespaces=true")
    made = [o for o in await _render(cluster, *DEV, *words) if o["kind"] == "Namespace"]
    assert [o["metadata"]["name"] for o in made] == ["a", "b"]
    assert all(o["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for o in made)
    assert all(o["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted" for o in made)


async def test_no_password_stands_in_a_pod(cluster: Cluster) -> None:
    rendered = await _render(cluster, *DEV, "--set", "agentNamespaces={a}")
    secrets = [o for o in rendered if o["kind"] == "Secret"]
    words = next(o for o in secrets if o["metadata"]["name"].endswith("-passwords"))["stringData"].values()
    others = yaml.safe_dump([o for o in rendered if o["kind"] != "Secret"])
    assert len(set(words)) == 6
    assert all(len(word) == 32 and word not in others for word in words)


async def test_agents_are_given_what_stands_in_the_users_own_secrets(
    cluster: Cluster, namespace: str
) -> None:
    literals = (
        "--from-literal=agent-dsn=postgresql://a@db/t",
        "--from-literal=agent-url=rediss://wire:6380/0",
    )
    await cluster.kubectl("create", "secret", "generic", "mine", *literals, namespace=namespace)
    given = "postgres.existingSecret=mine,redis.existingSecret=mine,crds.install=false"
    words = ("--dry-run=server", "--set", given, "--set", f"agentNamespaces={{{namespace}}}")
    rendered = await _render(cluster, *words, namespace=namespace)
    secrets = {o["metadata"]["name"]: o["stringData"] for o in rendered if o["kind"] == "Secret"}
    assert secrets == {
        "treadle-store": {"dsn": "postgresql://a@db/t"},
        "treadle-stream": {"url": "rediss://wire:6380/0"},
    }


async def test_redis_runs_as_the_store_wants_it(cluster: Cluster) -> None:
    rendered = await _render(cluster, *DEV)
    redis = next(
        o for o in rendered if o["kind"] == "StatefulSet" and o["metadata"]["name"].endswith("redis")
    )
    args = redis["spec"]["template"]["spec"]["containers"][0]["args"]
    assert {name: args[args.index(f"--{name}") + 1] for name in SERVER_SETTINGS} == SERVER_SETTINGS
    secrets = {o["metadata"]["name"]: o["stringData"] for o in rendered if o["kind"] == "Secret"}
    users = secrets["trial-treadle-stream-access"]["users.acl"]
    password = secrets["trial-treadle-passwords"]["redis-gateway"]
    assert f"user treadle-gateway {' '.join(reader_rules(password))}\n" in users
    assert users.startswith("user default reset off\n")


async def test_an_operator_of_some_namespaces_has_no_rights_elsewhere(cluster: Cluster) -> None:
    rendered = await _render(cluster, *DEV, "--set", "watchNamespaces={a,b}")
    bound = [
        (o["kind"], o["metadata"].get("namespace"))
        for o in rendered
        if o["kind"].endswith("RoleBinding") and o["roleRef"]["name"] == "trial-treadle-operator"
    ]
    assert bound == [("RoleBinding", "a"), ("RoleBinding", "b"), ("RoleBinding", "default")]
