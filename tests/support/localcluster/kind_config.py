"""kind's configuration for this host: what the host needs is asked, not assumed."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

# Node ports that are published on 127.0.0.1, by the purpose that the chart gives them.
NODE_PORTS = {"gateway": 30080, "postgres": 30432, "redis": 30379}
# A lost node is to be noticed while a test still waits for it; the kubelet's heartbeat comes every 10 s.
NODE_GRACE = "24s"

_CGROUP_V1 = """
kubeadmConfigPatches:
- |
  kind: KubeletConfiguration
  failCgroupV1: false
"""
_NO_NEGATIVE_SCORE = """
containerdConfigPatches:
- |-
  [plugins."io.containerd.grpc.v1.cri"]
    restrict_oom_score_adj = true
"""


@dataclass(frozen=True)
class Host:
    """What differs between hosts and matters to a node."""

    cgroup_version: int
    lowers_oom_score: bool


def render(host: Host, *, nodes: int, ports: Mapping[str, int]) -> str:
    """The configuration as YAML; `ports` maps purposes to free ports of 127.0.0.1."""
    text = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n"
    text += "networking:\n  apiServerAddress: 127.0.0.1\n  ipFamily: ipv4\n"
    text += "nodes:\n- role: control-plane\n  extraPortMappings:\n"
    for purpose, port in ports.items():
        text += f"  - {{containerPort: {NODE_PORTS[purpose]}, hostPort: {port}, listenAddress: 127.0.0.1}}\n"
    text += "- role: worker\n" * (nodes - 1)
    text += (
        "kubeadmConfigPatchesJSON6902:\n"
        "- group: kubeadm.k8s.io\n  version: v1beta4\n  kind: ClusterConfiguration\n  patch: |\n"
        "    - op: add\n      path: /controllerManager/extraArgs/-\n"
        f"      value: {{name: node-monitor-grace-period, value: {NODE_GRACE}}}\n"
    )
    if host.cgroup_version < 2:
        text += _CGROUP_V1.lstrip("\n")
    if not host.lowers_oom_score:
        text += _NO_NEGATIVE_SCORE.lstrip("\n")
    return text


def free_ports() -> dict[str, int]:
    """A free port of 127.0.0.1 for each purpose: the node port's own number where that is free."""
    return {purpose: _free(number) for purpose, number in NODE_PORTS.items()}


def _free(wanted: int) -> int:
    for number in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")
