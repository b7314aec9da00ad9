"""A program on PATH is taken for its version, not for its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.localcluster import programs
from support.localcluster.layout import PACKAGE, Layout
from support.localcluster.programs import KIND, built, clients, find

KUBECTL = '{{"clientVersion": {{"major": "1", "minor": "{}"}}}}'


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def put(path: Path, name: str, says: str) -> Path:
    (path / name).write_text(f"#!/bin/sh\ncat <<'EOF'\n{says}\nEOF\n")
    (path / name).chmod(0o755)
    return path / name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kind", f"kind {KIND} go1.26.0 linux/amd64"),
        ("kubectl", KUBECTL.format("35")),
        ("kubectl", KUBECTL.format("36+")),
        ("helm", "v3.12.0+gc9f554d"),
    ],
)
def test_a_program_of_a_fitting_version_is_found(path: Path, name: str, says: str) -> None:
    program = put(path, name, says)
    assert find(name) == program


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kind", "kind v0.20.0 go1.20 linux/amd64"),
        ("kind", f"kind {KIND}-alpha go1.26.0 linux/amd64"),
        ("kubectl", KUBECTL.format("32")),
        ("kubectl", "not json"),
        ("kubectl", "{}"),
        ("helm", "v2.17.0"),
    ],
)
def test_a_program_of_another_version_is_not_taken(path: Path, name: str, says: str) -> None:
    put(path, name, says)
    assert find(name) is None


def test_a_program_that_fails_is_not_taken(path: Path) -> None:
    put(path, "kind", "").write_text("#!/bin/sh\nexit 3\n")
    assert find("kind") is None


def test_what_was_built_goes_before_what_is_found(path: Path) -> None:
    layout = Layout(path / "cache")
    put(path, "helm", "v3.12.0")
    assert clients(layout)["helm"] == path / "helm"
    built(layout, "helm").parent.mkdir(parents=True)
    built(layout, "helm").touch()
    assert clients(layout)["helm"] == built(layout, "helm")


def test_every_source_has_its_module_with_go_sum_or_without_dependencies() -> None:
    for source in programs.SOURCES.values():
        folder = PACKAGE / "gomod" / source.module
        assert "require" not in (folder / "go.mod").read_text() or (folder / "go.sum").exists()


def test_a_program_is_named_after_what_it_is_built_from() -> None:
    keys = [programs.key(name) for name in programs.SOURCES]
    assert len(set(keys)) == len(keys)
