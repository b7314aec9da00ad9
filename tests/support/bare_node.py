"""A Node without a kubelet: pods are bound to it, and what happens to them is what a test says."""

import json
from typing import Any

from support.cluster import Cluster

LABEL = "treadle.dev/bare-node"


class BareNode:
    """Pods with `selector` and `tolerations` land here."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.name = name
        self.selector = {LABEL: name}
        self.tolerations = [{"operator": "Exists"}]

    async def create(self) -> None:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self.selector},
            "spec": {"taints": [{"key": LABEL, "value": "true", "effect": "NoSchedule"}]},
        }
        await self._cluster.apply(node)
        room = {"cpu": "100", "memory": "400Gi", "pods": "1000", "ephemeral-storage": "400Gi"}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "no kubelet"}
        await self._patch_status(
            "node", self.name, {"capacity": room, "allocatable": room, "conditions": [ready]}
        )

    async def delete(self) -> None:
        await self._cluster.kubectl("delete", "node", self.name, "--ignore-not-found")

    async def runs(self, namespace: str, pod: str) -> None:
        """The container has started."""
        await self._patch_status(
            "pod",
            pod,
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [
                    _container({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, ready=True)
                ],
            },
            namespace,
        )

    async def waits(self, namespace: str, pod: str, reason: str, message: str) -> None:
        """The container cannot start yet."""
        state = {"waiting": {"reason": reason, "message": message}}
        await self._patch_status(
            "pod", pod, {"phase": "Pending", "containerStatuses": [_container(state)]}, namespace
        )

    async def ends(
        self, namespace: str, pod: str, exit_code: int, *, message: str = "", reason: str = "Completed"
    ) -> None:
        """The container has terminated."""
        state = {"terminated": {"exitCode": exit_code, "reason": reason, "message": message}}
        phase = "Succeeded" if exit_code == 0 else "Failed"
        await self._patch_status(
            "pod", pod, {"phase": phase, "containerStatuses": [_container(state)]}, namespace
        )

    async def removes(self, namespace: str, pod: str) -> None:
        """The pod object goes, as once its containers have ended."""
        await self._cluster.kubectl(
            "delete", "pod", pod, "--force", "--grace-period=0", "--ignore-not-found", namespace=namespace
        )

    async def _patch_status(
        self, kind: str, name: str, status: dict[str, Any], namespace: str | None = None
    ) -> None:
        await self._cluster.kubectl(
            "patch",
            kind,
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            json.dumps({"status": status}),
            namespace=namespace,
        )


def _container(state: dict[str, Any], *, ready: bool = False) -> dict[str, Any]:
    return {
        "name": "agent",
        "image": "none",
        "imageID": "none@sha256:0",
        "restartCount": 0,
        "ready": ready,
        "state": state,
    }
