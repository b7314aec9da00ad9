"""What the ladder decides by itself, without climbing it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.cluster import read_exports
from support.localcluster import debian, ladder, node_image, oci_runtime, private_engine
from support.localcluster.engine import Engine
from support.localcluster.errors import ClusterError
from support.localcluster.ladder import Registry, exports
from support.localcluster.layout import Layout
from support.localcluster.settings import Settings
from support.localcluster.state import Cluster, State


def settings(**environ: str) -> Settings:
    return Settings.read(environ, name=None, nodes=None)


class Asked(Engine):
    """Counts how often it was asked for its registry."""

    times = 0

    def registry_answers(self) -> bool:
        type(self).times += 1
        return True


def test_the_registry_is_asked_once_and_only_when_somebody_wants_to_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Asked, "times", 0)
    registry = Registry(Asked("unix:///x"), offline=False)
    assert Asked.times == 0
    assert registry.answers()
    assert registry.answers()
    assert Asked.times == 1


def test_an_offline_machine_asks_no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asked, "times", 0)
    assert not Registry(Asked("unix:///x"), offline=True).answers()
    assert Asked.times == 0


def test_an_existing_cluster_finds_our_images_under_its_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/their/config")
    existing = settings(
        TREADLE_CLUSTER="existing", TREADLE_IMAGE_PREFIX="images.example", TREADLE_IMAGE_TAG="v1"
    )
    assert exports(Layout(tmp_path), existing) == {
        "KUBECONFIG": "/their/config",
        "TREADLE_CLUSTER_NAME": "treadle",
        "TREADLE_OPERATOR_IMAGE": "images.example/treadle-operator:v1",
        "TREADLE_RUNTIME_IMAGE": "images.example/treadle-runtime:v1",
        "TREADLE_DEVSTORE_IMAGE": "images.example/treadle-devstore:v1",
    }


def test_the_exports_lead_to_the_images_that_were_loaded(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    cluster = Cluster("treadle", "/k", 1, "node:1", images={"runtime": "r:1"}, ports={"gateway": 30080})
    State(clusters={"treadle": cluster}, host="unix:///x").write(layout.state_file)
    assert exports(layout, settings()) == {
        "KUBECONFIG": "/k",
        "DOCKER_HOST": "unix:///x",
        "TREADLE_CLUSTER_NAME": "treadle",
        "TREADLE_GATEWAY_PORT": "30080",
        "TREADLE_RUNTIME_IMAGE": "r:1",
    }


def test_there_are_no_exports_of_a_cluster_that_is_not_up(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="run `up` first"):
        exports(Layout(tmp_path), settings())


def test_exports_are_read_back_whatever_they_hold() -> None:
    text = "export A='with blank'\nexport B=x=y\nnot an export\nexport PATH=/a:\"$PATH\"\n"
    assert read_exports(text) == {"A": "with blank", "B": "x=y", "PATH": f"/a:{os.environ['PATH']}"}


def test_without_an_engine_and_without_root_the_way_out_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="Install and start Docker"):
        ladder.build_images(Layout(tmp_path), settings(TREADLE_OFFLINE="1"))


def test_who_has_no_engine_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match=r"(?s)sudo apt-get install -y docker.io .*by sudo"):
        ladder.up(Layout(tmp_path), settings(TREADLE_OFFLINE="1"), with_images=False)


def test_what_a_private_engine_needs_is_installed_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    (tmp_path / "apparmor").write_text("Y\n")
    monkeypatch.setattr(private_engine, "_APPARMOR", tmp_path / "apparmor")
    monkeypatch.setattr(private_engine, "search_path", lambda: str(tmp_path))
    monkeypatch.setattr(debian, "search_path", lambda: str(tmp_path))
    monkeypatch.setattr(debian, "install", lambda packages, why: asked.append(list(packages)))
    private_engine.install()
    assert asked == [["docker.io", "iptables", "iproute2", "apparmor"], ["docker-cli"]]


def test_what_a_killed_command_left_in_the_scratch_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    left = layout.scratch() / "tmpleft"
    left.mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="no engine answers"):
        ladder.up(layout, settings(TREADLE_OFFLINE="1"), with_images=False)
    assert not left.exists()


def test_a_node_image_is_built_by_root_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="only root can build it"):
        node_image.build_image(Layout(tmp_path), Engine("unix:///x"), "localhost/node:1")


def test_a_cluster_is_ended_by_a_name_that_it_has(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    State(clusters={"one": Cluster("one", "/cache/one", 1, "node:1")}).write(layout.state_file)
    with pytest.raises(ClusterError, match="no cluster other here; there are: one"):
        ladder.down(layout, only="other")


def test_a_cluster_that_was_never_made_is_ended_in_peace(tmp_path: Path) -> None:
    ladder.down(Layout(tmp_path), only="other")


@pytest.mark.parametrize("offline", [True, False])
def test_every_rule_of_the_firewall_names_its_cache_and_only_meets_our_bridge(offline: bool) -> None:
    layout = Layout(Path("/some/cache"))
    for rule in private_engine.firewall(layout, offline=offline):
        assert f"treadle-{layout.key}" in rule
        assert layout.bridge in rule
        assert rule.count("-I") == 1  # what `down` turns into -D


def test_an_engine_that_may_not_go_out_gets_a_name_server_that_is_nobodys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(oci_runtime, "grantable", lambda: True)
    layout = Layout(Path("/some/cache"))
    cut_off = private_engine.daemon_json(layout, offline=True)
    assert cut_off["dns"] == ["203.0.113.53"]
    assert "dns" not in private_engine.daemon_json(layout, offline=False)
    assert (cut_off["iptables"], cut_off["bridge"]) == (False, "none")
    assert "default-runtime" not in cut_off
