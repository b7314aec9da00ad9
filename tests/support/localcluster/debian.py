"""What comes from Debian: packages of this machine, and root file systems for images."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import follow, run, search_path
from .errors import ClusterError
from .layout import CHECKOUT, Layout, digest
from .narrate import say

_APT_SECONDS = 900
_INSTALL = CHECKOUT / "tests/support/install.sh"
_NOT_NEEDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def is_debian() -> bool:
    return shutil.which("apt-get") is not None


def install(packages: Sequence[str], why: str) -> None:
    """apt-get install, aloud; ClusterError where we may not (not root) or cannot (not Debian)."""
    wanted = " ".join(packages)
    if os.geteuid() != 0 or not is_debian():
        raise ClusterError(
            f"{why}: install {wanted}, on Debian by\n"
            f"  sudo apt-get update && sudo apt-get install -y --no-install-recommends {wanted}"
        )
    follow([_INSTALL, why, *packages], _tell, timeout=_APT_SECONDS)


def _tell(line: str) -> None:
    say("apt-get", line.removeprefix("install: "))


def require(program: str, package: str, why: str) -> None:
    """The program is on PATH afterwards."""
    if shutil.which(program, path=search_path()) is None:
        install([package], why)


@dataclass(frozen=True)
class Tree:
    """A root file system to be made of Debian packages, without the paths in `left_out`."""

    name: str
    suite: str
    variant: str
    packages: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    def key(self) -> str:
        parts = (self.suite, self.variant, *self.packages, *self.left_out, *_NOT_NEEDED, os.uname().machine)
        return digest(parts)[:12]


def tarball(layout: Layout, tree: Tree) -> Path:
    """The tree as a tar file in the cache, made by mmdebstrap if it is not there."""
    path = layout.trees / f"{tree.name}-{tree.key()}.tar"
    if path.exists():
        return path
    require("mmdebstrap", "mmdebstrap", "images are to be made without a registry")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new.tar")
    say("mmdebstrap", f"{tree.name} ({tree.suite}, {len(tree.packages)} packages)")
    command = ["mmdebstrap", "-q", f"--variant={tree.variant}", '--aptopt=APT::Install-Recommends "false"']
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in (*_NOT_NEEDED, *tree.left_out)]
    command += [f"--include={','.join(tree.packages)}", tree.suite, str(fresh)]
    run(command, timeout=_APT_SECONDS)
    fresh.replace(path)
    return path
