"""The root file system of a node: Debian packages, built programs, kind's own entrypoint and units."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path

from . import debian
from .commands import beside, run
from .errors import ClusterError
from .layout import PACKAGE, Layout
from .node_parts import BUSYBOX, NODE_TREE, Storage, kubeadm_images
from .programs import KUBERNETES, built, module_dir
from .waiting import wait_until

# (folder in the image, pattern, mode) of what kind's base image copies from `images/base/files`
_KIND_FILES = (
    ("usr/local/bin", "*", 0o755),
    ("kind", "README.txt", 0o644),
    ("kind/bin", "*", 0o755),
    ("etc", "crictl.yaml", 0o644),
    ("etc/containerd", "config.toml", 0o644),
    ("etc/default", "kubelet", 0o644),
    ("etc/sysctl.d", "*", 0o644),
    ("etc/systemd/system", "*.service", 0o644),
    ("etc/systemd/system", "*.slice", 0o644),
    ("etc/systemd/system/kubelet.service.d", "*", 0o644),
)
# units that have no business in a container; the list is that of kind's Dockerfile
_UNWANTED_UNITS = (
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
    "lib/systemd/system/multi-user.target.wants/*",
    "etc/systemd/system/*.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/basic.target.wants/*",
)
_NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists")
_NOT_FOR_PRELOAD = [
    *(f"io.containerd.snapshotter.v1.{name}" for name in ("btrfs", "devmapper", "zfs", "aufs", "native")),
    *("io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"),
]
_CRI_BASE = (
    "ctr oci spec | jq '.hooks.createContainer[.hooks.createContainer | length] |= . "
    '+ {"path": "/kind/bin/mount-product-files.sh"} | del(.process.rlimits)\' > /etc/containerd/cri-base.json'
)


def assemble(layout: Layout, root: Path, images: Path, kept: Storage) -> None:
    """Fill `root`, which must not exist; `images` is the archive to preload."""
    root.mkdir()
    run(["tar", "-C", root, "-xf", debian.tarball(layout, NODE_TREE)], timeout=300)
    _kind_files(layout, root)
    _units(root)
    _programs(layout, root)
    _configuration(layout, root)
    manifests = root / "kind/manifests"
    manifests.mkdir(parents=True)
    network = (PACKAGE / "manifests/bridge-cni.yaml").read_text()
    (manifests / "default-cni.yaml").write_text(network.replace("@BUSYBOX@", BUSYBOX))
    (manifests / "default-storage.yaml").write_text(kept.manifest)
    for name in _NOT_NEEDED:
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    preload(root, images)


def _kind_files(layout: Layout, root: Path) -> None:
    files = module_dir(layout, "sigs.k8s.io/kind") / "images/base/files"
    for folder, pattern, mode in _KIND_FILES:
        (root / folder).mkdir(parents=True, exist_ok=True)
        for source in sorted((files / folder).glob(pattern)):
            if source.is_file():
                target = root / folder / source.name
                shutil.copyfile(source, target)
                target.chmod(mode)
    (root / "etc/kubernetes/manifests").mkdir(parents=True, exist_ok=True)


def _units(root: Path) -> None:
    for pattern in _UNWANTED_UNITS:
        for unit in root.glob(pattern):
            unit.unlink()
    with (root / "etc/systemd/journald.conf").open("a") as journald:
        journald.write("ReadKMsg=no\n")
    init = root / "sbin/init"
    init.unlink(missing_ok=True)
    init.symlink_to("/usr/lib/systemd/systemd")
    run(["chroot", root, "systemctl", "enable", "kubelet", "containerd", "undo-mount-hacks"], timeout=60)
    run(["chroot", root, "systemctl", "mask", "systemd-binfmt.service"], timeout=60)


def _programs(layout: Layout, root: Path) -> None:
    for name, folder in {
        "kubeadm": "usr/bin",
        "kubectl": "usr/bin",
        "kubelet": "usr/bin",
        "crictl": "usr/local/bin",
    }.items():
        shutil.copyfile(built(layout, name), root / folder / name)
        (root / folder / name).chmod(0o755)
    (root / "usr/local/bin/containerd").symlink_to("/usr/bin/containerd")
    plugins = root / "opt/cni/bin"
    plugins.mkdir(parents=True)
    for plugin in (root / "usr/lib/cni").iterdir():
        shutil.copy(plugin, plugins / plugin.name)


def _configuration(layout: Layout, root: Path) -> None:
    containerd = root / "etc/containerd/config.toml"
    pause = kubeadm_images(layout)["pause"]
    text, count = re.subn(r'sandbox_image = ".*"', f'sandbox_image = "{pause}"', containerd.read_text())
    if count != 1:
        raise ClusterError("kind's containerd configuration names no sandbox image: adapt node_rootfs")
    containerd.write_text(text)
    run(["chroot", root, "sh", "-c", _CRI_BASE], timeout=60)
    (root / "kind/version").write_text(KUBERNETES)


def preload(root: Path, images: Path) -> None:
    """Import the images into the node's own containerd store, by a throw-away containerd on this machine."""
    debian.require("containerd", "containerd", "the node image is to be filled")
    # Not in the cache: a socket's path has room for 107 bytes.
    with tempfile.TemporaryDirectory() as folder:
        configuration, socket = Path(folder) / "config.toml", Path(folder) / "c.sock"
        configuration.write_text(
            f'version = 2\nroot = "{root}/var/lib/containerd"\nstate = "{folder}/state"\n'
            f'disabled_plugins = {json.dumps(_NOT_FOR_PRELOAD)}\n[grpc]\n  address = "{socket}"\n'
        )
        importing = [
            "ctr",
            "--address",
            str(socket),
            "--namespace",
            "k8s.io",
            "images",
            "import",
            "--no-unpack",
        ]
        with (
            (images.parent / "containerd.log").open("wb") as log,
            beside(["containerd", "--config", configuration], stdout=log, stderr=log) as containerd,
        ):
            wait_until("the throw-away containerd", socket.exists, seconds=60)
            run([*importing, images], timeout=600)
            containerd.terminate()
            containerd.wait(timeout=60)
