"""The images of the control plane, made of built programs, under the names that kubeadm and kind ask for."""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from . import archive, debian
from .archive import Image, Layer
from .commands import run
from .errors import ClusterError
from .layout import Layout
from .programs import CONTROL_PLANE, KUBERNETES, built, module_dir

BUSYBOX = "localhost/treadle-busybox:1"
_SUITE = "bookworm"  # its containerd 1.6 and systemd 252 run on cgroup v1 hosts too
NODE_TREE = debian.Tree(
    "node",
    _SUITE,
    "minbase",
    (
        *(
            "systemd",
            "util-linux",
            "mount",
            "kmod",
            "procps",
            "bash",
            "ca-certificates",
            "curl",
            "jq",
            "pigz",
        ),
        *("containerd", "runc", "containernetworking-plugins", "libseccomp2", "e2fsprogs"),
        *("conntrack", "iptables", "nftables", "iproute2", "ethtool", "socat"),
    ),
)
PROXY_TREE = debian.Tree("kube-proxy", _SUITE, "extract", ("iptables", "nftables", "conntrack", "kmod"))
BUSYBOX_TREE = debian.Tree("busybox", _SUITE, "extract", ("busybox-static",))
_IPTABLES = tuple(
    f"{family}{tool}" for family in ("iptables", "ip6tables") for tool in ("", "-save", "-restore")
)


@dataclass(frozen=True)
class Storage:
    """kind's default storage class, taken out of its source: the manifest and the two images it names."""

    manifest: str
    provisioner: str
    helper: str


def storage(layout: Layout) -> Storage:
    """Read from kind's module, since `kind` itself does not tell it."""
    source = (module_dir(layout, "sigs.k8s.io/kind") / "pkg/build/nodeimage/const_storage.go").read_text()
    images = dict(re.findall(r'const (storage\w+Image) = "([^"]+)"', source))
    found = re.search(r"const defaultStorageManifest = `(.*)`", source, re.DOTALL)
    if not found or set(images) != {"storageProvisionerImage", "storageHelperImage"}:
        raise ClusterError(
            "this version of kind keeps its storage manifest elsewhere: adapt node_parts.storage"
        )
    manifest = found[1]
    for name, image in images.items():
        manifest = manifest.replace(f"` + {name} + `", image)
    return Storage(manifest, images["storageProvisionerImage"], images["storageHelperImage"])


def kubeadm_images(layout: Layout) -> dict[str, str]:
    """What kubeadm's manifests will name, by the image's last word: asked, the tags are its choice."""
    kubeadm = built(layout, "kubeadm")
    names = run([kubeadm, "config", "images", "list", "--kubernetes-version", KUBERNETES], timeout=60).split()
    return {name.rpartition(":")[0].rpartition("/")[2]: name for name in names}


def save(layout: Layout, scratch: Path, kept: Storage) -> Path:
    """One archive of all images that a node has from the beginning."""
    names = kubeadm_images(layout)
    images: list[Image] = []

    def program(
        name: str, tag: str, *below: Path, links: dict[str, str] | None = None, at: str = "usr/local/bin"
    ) -> None:
        top = Layer(
            {f"{at}/{name}".lstrip("/"): built(layout, name)}, links or {}, {"tmp": 0o1777, "run": 0o755}
        )
        layer = top.write(scratch / f"{name}.layer.tar")
        images.append(Image((tag,), (*below, layer), (f"/{at}/{name}" if at else f"/{name}",)))

    for name in (*CONTROL_PLANE, "etcd"):
        program(name, names[name])
    program("coredns", names["coredns"], at="")
    program("pause", names["pause"], at="")
    # The packages are unpacked, not configured: what update-alternatives would link is linked here.
    alternatives = {f"usr/sbin/{name}": "xtables-nft-multi" for name in _IPTABLES}
    program("kube-proxy", names["kube-proxy"], debian.tarball(layout, PROXY_TREE), links=alternatives)
    program("local-path-provisioner", kept.provisioner)
    images.append(Image((BUSYBOX, kept.helper), (_busybox(layout, scratch),), ("sh",)))
    path = scratch / "images.tar"
    archive.save(path, images)
    return path


def _busybox(layout: Layout, scratch: Path) -> Path:
    program = scratch / "busybox"
    with tarfile.open(debian.tarball(layout, BUSYBOX_TREE)) as tar:
        member = next(entry for entry in tar if entry.isfile() and entry.name.endswith("/bin/busybox"))
        content = tar.extractfile(member)
        assert content is not None
        program.write_bytes(content.read())
    program.chmod(0o755)
    applets = run([program, "--list"], timeout=20).split()
    links = {f"bin/{applet}": "busybox" for applet in applets if applet != "busybox"}
    layer = Layer({"bin/busybox": program}, links, {"tmp": 0o1777, "etc": 0o755})
    return layer.write(scratch / "busybox.layer.tar")
