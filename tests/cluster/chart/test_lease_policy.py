"""An agent's pod writes its own run's Lease and nothing else: bound tokens on the real API server."""

from copy import deepcopy
from typing import Any

import pytest

from support.agent_pods import AgentPod, account_token, agent_pod, lease_path, run_lease
from support.apiserver import Answer, ApiServer
from support.cluster import Cluster
from support.release import Release

pytestmark = pytest.mark.req("R92")


async def _put(
    server: ApiServer, namespace: str, lease: dict[str, Any], token: str | None, **spec: Any
) -> Answer:
    changed = deepcopy(lease)
    changed["spec"] |= spec
    return await server.request("PUT", lease_path(namespace, lease["metadata"]["name"]), changed, token=token)


@pytest.fixture
async def pod(server: ApiServer, agent_namespace: str) -> AgentPod:
    return await agent_pod(server, agent_namespace)


@pytest.fixture
async def lease(server: ApiServer, agent_namespace: str, pod: AgentPod) -> dict[str, Any]:
    """Of this pod's run, held by nobody."""
    return await run_lease(server, agent_namespace, pod.name)


@pytest.mark.req("R19")
async def test_a_pod_takes_renews_and_releases_its_own_lease(
    server: ApiServer, agent_namespace: str, pod: AgentPod, lease: dict[str, Any]
) -> None:
    taken = (await _put(server, agent_namespace, lease, pod.token, holderIdentity=pod.holder)).agreed()
    now = "2026-01-02T03:04:05.000000Z"
    renewed = (await _put(server, agent_namespace, taken, pod.token, renewTime=now)).agreed()
    released = (await _put(server, agent_namespace, renewed, pod.token, holderIdentity="")).agreed()
    assert released["spec"].get("holderIdentity", "") == ""


async def test_a_pod_cannot_take_another_pods_lease(
    server: ApiServer, agent_namespace: str, pod: AgentPod
) -> None:
    other = await run_lease(server, agent_namespace, "other-a1")
    answer = await _put(server, agent_namespace, other, pod.token, holderIdentity=pod.holder)
    assert f"this Lease belongs to pod other-a1, the caller is pod {pod.name}" in str(answer.refusal)


async def test_a_pod_cannot_act_as_another_holder(
    server: ApiServer, agent_namespace: str, pod: AgentPod, lease: dict[str, Any]
) -> None:
    answer = await _put(server, agent_namespace, lease, pod.token, holderIdentity="other-uid/nonce")
    assert "holderIdentity must be empty or <uid of the calling pod>/<nonce>" in str(answer.refusal)


async def test_a_pod_cannot_push_out_a_holder(server: ApiServer, agent_namespace: str, pod: AgentPod) -> None:
    held = await run_lease(server, agent_namespace, pod.name, holder="old-uid/nonce")
    for holder in ("", pod.holder):
        answer = await _put(server, agent_namespace, held, pod.token, holderIdentity=holder)
        assert "the Lease is held by another pod: only the operator takes it away" in str(answer.refusal)


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"treadle.dev/pod": "other-a1"}},
        {"annotations": {}},
        {"labels": {}},
        {"labels": {"treadle.dev/run": "other"}},
        {"finalizers": ["example.com/stay"]},
    ],
    ids=["another pod", "no pod", "no run", "another run", "a finalizer"],
)
async def test_a_pod_cannot_change_whose_lease_it_is(
    server: ApiServer, agent_namespace: str, pod: AgentPod, lease: dict[str, Any], metadata: dict[str, Any]
) -> None:
    lease["metadata"] |= metadata
    answer = await _put(server, agent_namespace, lease, pod.token)
    assert "a pod may change only the spec of its Lease" in str(answer.refusal)


async def test_a_pod_cannot_write_a_lease_that_is_no_runs(
    server: ApiServer, agent_namespace: str, pod: AgentPod
) -> None:
    foreign = await run_lease(server, agent_namespace, None, holder="somebody", ours=False)
    answer = await _put(server, agent_namespace, foreign, pod.token, holderIdentity="")
    assert "this Lease belongs to pod (none)" in str(answer.refusal)


async def test_a_token_that_is_bound_to_no_pod_writes_no_lease(
    server: ApiServer, agent_namespace: str, lease: dict[str, Any]
) -> None:
    token = await account_token(server, agent_namespace, "treadle-agent")
    answer = await _put(server, agent_namespace, lease, token)
    assert "the caller is not a pod" in str(answer.refusal)


async def test_the_token_of_a_deleted_pod_opens_nothing(
    server: ApiServer, agent_namespace: str, pod: AgentPod, lease: dict[str, Any]
) -> None:
    path = f"/api/v1/namespaces/{agent_namespace}/pods/{pod.name}?gracePeriodSeconds=0"
    (await server.request("DELETE", path)).agreed()
    answer = await _put(server, agent_namespace, lease, pod.token, holderIdentity=pod.holder)
    assert answer.code == 401


async def test_the_operator_moves_a_lease_to_the_next_pod(
    cluster: Cluster,
    server: ApiServer,
    agent_namespace: str,
    treadle_release: Release,
    lease: dict[str, Any],
) -> None:
    account = f"{treadle_release.fullname}-operator"
    whom = (f"--clusterrole={account}", f"--serviceaccount={treadle_release.namespace}:{account}")
    await cluster.kubectl("create", "rolebinding", "operator", *whom, namespace=agent_namespace)
    token = await account_token(server, treadle_release.namespace, account)
    lease["metadata"]["annotations"]["treadle.dev/pod"] = "review-a2"
    moved = (await _put(server, agent_namespace, lease, token, holderIdentity="")).agreed()
    assert moved["metadata"]["annotations"] == {"treadle.dev/pod": "review-a2"}


async def test_a_program_that_runs_no_agents_is_left_alone(server: ApiServer, agent_namespace: str) -> None:
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{agent_namespace}"
    api = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]}]
    account = {"metadata": {"name": "elector"}}
    (await server.request("POST", f"/api/v1/namespaces/{agent_namespace}/serviceaccounts", account)).agreed()
    (await server.request("POST", f"{rbac}/roles", {**account, "rules": rules})).agreed()
    binding = {
        **account,
        "roleRef": {"apiGroup": api, "kind": "Role", "name": "elector"},
        "subjects": [{"kind": "ServiceAccount", "name": "elector", "namespace": agent_namespace}],
    }
    (await server.request("POST", f"{rbac}/rolebindings", binding)).agreed()
    foreign = await run_lease(server, agent_namespace, None, ours=False)
    token = await account_token(server, agent_namespace, "elector")
    assert (await _put(server, agent_namespace, foreign, token, holderIdentity="me")).agreed()
