"""Who may do what: an agent next to nothing, the operator what it needs, people by the built-in roles."""

from typing import Any

import pytest

from support.agent_pods import AgentPod, account_token, agent_pod, lease_path, run_lease
from support.apiserver import ApiServer
from support.cluster import Cluster
from support.release import Release

Rules = set[tuple[str, str, str]]


async def _rights(server: ApiServer, namespace: str, token: str) -> Rules:
    """(group, resource, verb) of all that the token allows, without what anybody may ask about oneself."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    answer = (await server.request("POST", path, body, token=token)).agreed()
    return {
        (group, resource, verb)
        for rule in answer["status"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if not resource.startswith("selfsubject")
    }


@pytest.fixture
async def pod(server: ApiServer, agent_namespace: str) -> AgentPod:
    return await agent_pod(server, agent_namespace)


@pytest.mark.req("R92")
async def test_an_agent_may_read_and_update_leases_and_nothing_else(
    server: ApiServer, agent_namespace: str, pod: AgentPod
) -> None:
    assert await _rights(server, agent_namespace, pod.token) == {
        ("coordination.k8s.io", "leases", "get"),
        ("coordination.k8s.io", "leases", "update"),
        ("treadle.dev", "runs", "hold"),  # a mark for the policy; no request has this verb
    }


@pytest.mark.req("R92")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/v1/namespaces/{ns}/secrets/treadle-store", None),
        ("GET", "/api/v1/namespaces/{ns}/pods", None),
        ("GET", "/api/v1/namespaces/{ns}/configmaps", None),
        ("GET", "/apis/treadle.dev/v1alpha1/namespaces/{ns}/runs", None),
        ("POST", "/api/v1/namespaces/{ns}/pods", {"metadata": {"name": "x"}}),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", None),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", {"metadata": {"name": "x"}}),
        ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/{lease}", None),
        ("PATCH", "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/{lease}", {"spec": {}}),
        ("PUT", "/apis/treadle.dev/v1alpha1/namespaces/{ns}/runs/x/status", {"metadata": {"name": "x"}}),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", None),
        ("GET", "/api/v1/nodes", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_agents_request_is_forbidden(
    server: ApiServer,
    agent_namespace: str,
    pod: AgentPod,
    method: str,
    path: str,
    body: dict[str, Any] | None,
) -> None:
    lease = await run_lease(server, agent_namespace, pod.name)
    answer = await server.request(
        method,
        path.format(ns=agent_namespace, lease=lease["metadata"]["name"]),
        body,
        token=pod.token,
        content_type="application/merge-patch+json" if method == "PATCH" else "application/json",
    )
    assert answer.code == 403


async def test_the_operator_has_the_rights_that_it_uses_and_no_others(
    server: ApiServer, watched_namespace: str, treadle_release: Release
) -> None:
    account = f"{treadle_release.fullname}-operator"
    token = await account_token(server, treadle_release.namespace, account)
    rights = await _rights(server, watched_namespace, token)
    assert {resource for _, resource, verb in rights if verb in {"list", "watch"}} == {
        "agents",
        "threads",
        "runs",
        "pods",
        "leases",
    }
    assert {verb for _, resource, verb in rights if resource in {"secrets", "configmaps"}} == {"get"}
    assert not {right for right in rights if "*" in right}
    assert {resource for _, resource, verb in rights if verb == "delete"} == {"pods", "leases"}


async def test_the_gateway_asks_who_a_caller_is_and_nothing_else(
    server: ApiServer, agent_namespace: str, treadle_release: Release
) -> None:
    token = await account_token(server, treadle_release.namespace, f"{treadle_release.fullname}-gateway")
    assert await _rights(server, agent_namespace, token) == {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }


@pytest.mark.parametrize(
    ("role", "verbs"),
    [
        ("view", {"get", "list", "watch"}),
        ("edit", {"get", "list", "watch", "create", "update", "patch", "delete"}),
        ("admin", {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}),
    ],
)
async def test_the_built_in_roles_know_our_kinds(
    cluster: Cluster, server: ApiServer, treadle_release: Release, namespace: str, role: str, verbs: set[str]
) -> None:
    words = (
        "create",
        "rolebinding",
        "people",
        f"--clusterrole={role}",
        f"--serviceaccount={namespace}:default",
    )
    await cluster.kubectl(*words, namespace=namespace)
    token = await account_token(server, namespace, "default")
    rights = await _rights(server, namespace, token)
    for kind in ("agents", "threads", "runs"):
        assert {
            verb for group, resource, verb in rights if (group, resource) == ("treadle.dev", kind)
        } == verbs
    assert not {resource for group, resource, _ in rights if group == "treadle.dev" and "status" in resource}


async def test_leases_can_be_listed_by_nobody_else_in_a_namespace_of_agents(
    server: ApiServer, agent_namespace: str
) -> None:
    token = await account_token(server, agent_namespace, "default")
    assert (await server.request("GET", lease_path(agent_namespace), token=token)).code == 403
