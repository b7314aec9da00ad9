"""Agents' pods that never run: a token bound to a pod needs the Pod object, no container."""

import secrets
from dataclasses import dataclass
from typing import Any

from support.apiserver import ApiServer

RESTRICTED_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
RESTRICTED_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@dataclass(frozen=True)
class AgentPod:
    """A pod of ServiceAccount treadle-agent, with a token bound to it."""

    name: str
    uid: str
    token: str

    @property
    def holder(self) -> str:
        return f"{self.uid}/nonce"


async def account_token(
    server: ApiServer, namespace: str, account: str, *, pod: dict[str, Any] | None = None
) -> str:
    """A token of the ServiceAccount; with `pod` (its metadata) as the kubelet would put it into that pod."""
    spec: dict[str, Any] = {"expirationSeconds": 600}
    if pod is not None:
        spec["boundObjectRef"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["name"],
            "uid": pod["uid"],
        }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = (await server.request("POST", path, body)).agreed()
    return str(answer["status"]["token"])


async def agent_pod(server: ApiServer, namespace: str) -> AgentPod:
    """A pod that no node takes."""
    name = f"review-{secrets.token_hex(4)}-a1"
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "serviceAccountName": "treadle-agent",
            "nodeSelector": {"treadle.dev/never": "true"},
            "securityContext": RESTRICTED_POD,
            "containers": [
                {"name": "agent", "image": "never-pulled", "securityContext": RESTRICTED_CONTAINER}
            ],
        },
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    metadata = (await server.request("POST", path, manifest)).agreed()["metadata"]
    token = await account_token(server, namespace, "treadle-agent", pod=metadata)
    return AgentPod(name, metadata["uid"], token)


def lease_path(namespace: str, name: str = "") -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{path}/{name}" if name else path


def lease_body(name: str, pod: str | None, *, holder: str = "", ours: bool = True) -> dict[str, Any]:
    """A Lease as the operator makes it (`ours`), or as another program does."""
    metadata: dict[str, Any] = {"name": name, "finalizers": []}
    if ours:
        metadata |= {"labels": {"treadle.dev/run": name}, "annotations": {"treadle.dev/pod": pod}}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 40},
    }


async def run_lease(
    server: ApiServer, namespace: str, pod: str | None, *, holder: str = "", ours: bool = True
) -> dict[str, Any]:
    """Such a Lease, made, under a name of its own."""
    body = lease_body(f"run-{secrets.token_hex(4)}", pod, holder=holder, ours=ours)
    return (await server.request("POST", lease_path(namespace), body)).agreed()
