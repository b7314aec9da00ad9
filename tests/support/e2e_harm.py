"""What is done to a Run's programs: signals from the node, where even process 1 of a pod obeys them."""

from typing import Any

from support.cluster import Cluster
from support.release import Release

_SEND = """
for container in $3; do
  keeper=$(crictl inspect --output go-template --template '{{.info.pid}}' "$container")
  agents=$(cat "/proc/$keeper/task/$keeper/children")
  case "$2" in
    keeper) kill -s "$1" "$keeper" ;;
    agent) kill -s "$1" $agents ;;
    both) kill -s "$1" "$keeper" $agents ;;
  esac
done
"""


async def send(cluster: Cluster, signal: str, which: str, pod: dict[str, Any]) -> None:
    """Sends `signal` to the `keeper` (process 1), the `agent` (its children) or `both`.

    Raises KubectlFailed when there is no such process.
    """
    statuses = pod["status"]["containerStatuses"]
    containers = " ".join(status["containerID"].partition("://")[2] for status in statuses)
    node = pod["spec"]["nodeName"]
    await cluster.run("docker", "exec", node, "sh", "-ec", _SEND, "send", signal, which, containers)


async def kill_operators(cluster: Cluster, release: Release) -> None:
    """SIGKILL for the leader and its standby: no Lease is released, nothing is said.

    Their pods go as well: the kubelet would make their containers wait longer from one killing to the next.
    """
    selector = f"app.kubernetes.io/instance={release.name},app.kubernetes.io/component=operator"
    listed = await cluster.get("pods", f"--selector={selector}", namespace=release.namespace)
    running = [pod for pod in listed["items"] if pod["status"]["phase"] == "Running"]
    assert running, "no operator runs"
    for pod in running:
        await send(cluster, "KILL", "keeper", pod)
    names = [pod["metadata"]["name"] for pod in listed["items"]]
    await cluster.kubectl(
        "delete", "pod", *names, "--grace-period=0", "--force", "--wait=false", namespace=release.namespace
    )


async def operators_are_back(cluster: Cluster, release: Release) -> None:
    """Waits until both are ready; one of them waits for the Lease of the killed leader to expire."""
    rollout = ("rollout", "status", f"deployment/{release.fullname}-operator", "--timeout=120s")
    await cluster.kubectl(*rollout, namespace=release.namespace, seconds=130)
