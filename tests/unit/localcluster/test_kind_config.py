"""The configuration holds what this host needs, and no more."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import yaml

from support.localcluster.kind_config import NODE_PORTS, Host, free_ports, render

MODERN = Host(cgroup_version=2, lowers_oom_score=True)


def rendered(host: Host, nodes: int = 1) -> dict[str, Any]:
    whole: dict[str, Any] = yaml.safe_load(render(host, nodes=nodes, ports={"gateway": 31000}))
    return whole


def test_an_ordinary_host_gets_no_patch_of_the_kubelet_or_of_containerd() -> None:
    assert "kubeadmConfigPatches" not in rendered(MODERN)
    assert "containerdConfigPatches" not in rendered(MODERN)


def test_a_cgroup_v1_host_tells_the_kubelet_to_run_all_the_same() -> None:
    (patch,) = rendered(Host(1, lowers_oom_score=True))["kubeadmConfigPatches"]
    assert yaml.safe_load(patch) == {"kind": "KubeletConfiguration", "failCgroupV1": False}


def test_a_host_that_grants_no_lower_oom_score_tells_containerd_not_to_ask() -> None:
    (patch,) = rendered(Host(2, lowers_oom_score=False))["containerdConfigPatches"]
    assert "restrict_oom_score_adj = true" in patch


@pytest.mark.parametrize(("nodes", "workers"), [(1, 0), (3, 2)])
def test_the_first_node_is_the_control_plane_and_the_rest_are_workers(nodes: int, workers: int) -> None:
    roles = [node["role"] for node in rendered(MODERN, nodes)["nodes"]]
    assert roles == ["control-plane", *["worker"] * workers]


def test_ports_are_published_on_loopback_alone() -> None:
    config = rendered(MODERN)
    assert config["networking"]["apiServerAddress"] == "127.0.0.1"
    assert config["nodes"][0]["extraPortMappings"] == [
        {"containerPort": NODE_PORTS["gateway"], "hostPort": 31000, "listenAddress": "127.0.0.1"}
    ]


def test_a_taken_port_is_replaced_by_a_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        monkeypatch.setitem(NODE_PORTS, "gateway", number)
        assert free_ports()["gateway"] != number
    assert free_ports()["gateway"] == number
