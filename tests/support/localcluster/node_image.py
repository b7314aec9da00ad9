"""The node image: present, else pulled, else built from source."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import debian, node_parts, node_rootfs
from .commands import beside
from .engine import Engine
from .errors import ClusterError, CommandFailed
from .layout import PACKAGE, Layout, digest_files
from .narrate import rung
from .programs import FOR_NODES, KIND, KUBERNETES, build, key

# What this kind release names (pkg/apis/config/defaults/image.go of kind v0.33.0).
OFFICIAL = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
_PULL_SECONDS = 600
_RECIPE = ("archive.py", "debian.py", "node_parts.py", "node_rootfs.py", "node_image.py", "manifests")
_METADATA = """FROM {rootfs}
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
"""


def ensure(layout: Layout, engine: Engine, *, registry: Callable[[], bool]) -> str:
    """The name of a node image that is in the engine's store."""
    with rung("node image") as this:
        official_fits = (
            engine.cgroup_version() >= 2
        )  # its kubelet is past the last one that runs on cgroup v1
        if official_fits and engine.has_image(OFFICIAL):
            this.note(f"{OFFICIAL.partition('@')[0]} is present")
            return OFFICIAL
        own = local_name()
        if engine.has_image(own):
            this.note(f"{own} is present")
            return own
        if official_fits and registry():
            try:
                engine.docker("pull", "--quiet", OFFICIAL, timeout=_PULL_SECONDS)
            except CommandFailed as failure:
                this.note(f"pull failed ({failure.reason}); building from source")
            else:
                this.note(f"{OFFICIAL.partition('@')[0]} pulled")
                return OFFICIAL
        build_image(layout, engine, own)
        this.note(f"{own} built from source")
        return own


def local_name() -> str:
    """Named after everything that it is made of."""
    recipe = digest_files([PACKAGE / name for name in _RECIPE], KIND, *(key(name) for name in FOR_NODES))
    return f"localhost/treadle-node:{KUBERNETES}-{recipe[:12]}"


def build_image(layout: Layout, engine: Engine, name: str) -> None:
    if os.geteuid() != 0:
        raise ClusterError(
            "the node image cannot be pulled here, and only root can build it: run the same command by sudo, "
            "or let the engine reach its image registry"
        )
    debian.require("mmdebstrap", "mmdebstrap", "the node image is to be built without a registry")
    trees = (node_parts.NODE_TREE, node_parts.PROXY_TREE, node_parts.BUSYBOX_TREE)
    with rung("node parts") as this, ThreadPoolExecutor(1) as beside:
        packages = beside.submit(lambda: [debian.tarball(layout, tree) for tree in trees])
        build(layout, FOR_NODES)
        packages.result()
        this.note(f"{len(FOR_NODES)} programs and {len(trees)} package trees")
    with rung("node files"), tempfile.TemporaryDirectory(dir=layout.scratch()) as folder:
        scratch = Path(folder)
        kept = node_parts.storage(layout)
        root = scratch / "root"
        node_rootfs.assemble(layout, root, node_parts.save(layout, scratch, kept), kept)
        rootfs = "localhost/treadle-node-rootfs:new"
        import_tree(engine, root, rootfs)
        # `docker import -c` knows no STOPSIGNAL, hence a build that adds nothing but metadata.
        engine.docker(
            "build", "--quiet", "--tag", name, "-", stdin=_METADATA.format(rootfs=rootfs), timeout=300
        )
        engine.docker("image", "rm", rootfs)
        shutil.rmtree(root)


def import_tree(engine: Engine, root: Path, name: str) -> None:
    """`docker import` of a folder, without a tar file in between."""
    excluded = [f"--exclude=./{folder}/*" for folder in ("dev", "proc", "sys")]
    command = ["tar", "-C", str(root), "--numeric-owner", "--xattrs", *excluded, "-c", "."]
    with beside(command, stdout=subprocess.PIPE) as tar:
        engine.docker("import", "-", name, timeout=600, stdin=tar.stdout)
        if tar.wait(timeout=60) != 0:
            raise ClusterError(f"tar of the node's files ended with code {tar.returncode}")
