"""The programs: found on PATH where their version fits, else built from their Go modules into the cache."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import golang
from .commands import follow, run
from .errors import ClusterError, CommandFailed
from .layout import PACKAGE, Layout, digest_files
from .narrate import Progress, rung, say

KUBERNETES = "v1.35.4"
KIND = "v0.33.0"
HELM = "v3.22.0"
_BUILD_SECONDS = 3600
_BUILD = ("build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false")


def _stamp(package: str, major: str, minor: str) -> str:
    return f"-X {package}={major} -X {package.replace('Major', 'Minor')}={minor}"


_MINOR = KUBERNETES.split(".")[1]
_KUBERNETES_STAMP = " ".join(
    f"-X {package}.gitVersion={KUBERNETES} {_stamp(package + '.gitMajor', '1', _MINOR)}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
)
_HELM_STAMP = " ".join(
    [
        f"-X helm.sh/helm/v3/internal/version.version={HELM}",
        _stamp("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", "1", _MINOR),
        _stamp("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor", "1", _MINOR),
    ]
)


@dataclass(frozen=True)
class Source:
    """How a program is built: its module under `gomod/`, the main package, stamps and tags."""

    module: str
    package: str
    stamp: str = ""
    tags: str = ""


def _of_kubernetes(name: str) -> Source:
    return Source("kubernetes", f"k8s.io/kubernetes/cmd/{name}", _KUBERNETES_STAMP, "providerless")


CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
SOURCES: dict[str, Source] = {
    "kind": Source("kind", "sigs.k8s.io/kind"),
    "helm": Source("helm", "helm.sh/helm/v3/cmd/helm", _HELM_STAMP),
    **{
        name: _of_kubernetes(name) for name in ("kubectl", "kubeadm", "kubelet", "kube-proxy", *CONTROL_PLANE)
    },
    "etcd": Source("kubernetes", "go.etcd.io/etcd/server/v3"),
    "coredns": Source("coredns", "github.com/coredns/coredns"),
    "crictl": Source("crictl", "sigs.k8s.io/cri-tools/cmd/crictl"),
    "local-path-provisioner": Source("local-path-provisioner", "github.com/rancher/local-path-provisioner"),
    "pause": Source("pause", "treadle.dev/localcluster/pause"),
}
FOR_NODES = tuple(name for name in SOURCES if name not in ("kind", "helm"))


def find(name: str) -> Path | None:
    """The program on PATH if it is of a version that fits; its name is no proof."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        if name == "kind":
            fits = f"kind {KIND} " in run([path, "version"], timeout=10) + " "
        elif name == "kubectl":
            version = json.loads(run([path, "version", "--client", "-o", "json"], timeout=10))
            minor = int(re.sub(r"\D", "", version["clientVersion"]["minor"]))
            fits = abs(minor - int(_MINOR)) <= 1  # the version skew that Kubernetes supports
        else:
            fits = run([path, "version", "--template", "{{.Version}}"], timeout=10).startswith("v3.")
    except (CommandFailed, ValueError, KeyError):
        return None
    return Path(path) if fits else None


def key(name: str) -> str:
    source = SOURCES[name]
    return digest_files(
        [PACKAGE / "gomod" / source.module], source.package, source.stamp, source.tags, os.uname().machine
    )


def built(layout: Layout, name: str) -> Path:
    """Where the program lies once it is built."""
    return layout.programs / f"{name}-{key(name)[:12]}" / name


def clients(layout: Layout) -> dict[str, Path]:
    """kind, kubectl and helm: the built one, else a fitting one on PATH, else where it will be built."""

    def choose(name: str) -> Path:
        own = built(layout, name)
        return own if own.exists() else find(name) or own

    return {name: choose(name) for name in ("kind", "kubectl", "helm")}


def client_programs(layout: Layout) -> dict[str, Path]:
    """kind, kubectl and helm, built where need be."""
    with rung("programs") as this:
        chosen = clients(layout)
        build(layout, [name for name, path in chosen.items() if not path.exists()])
        ours = [name for name, path in chosen.items() if layout.cache in path.parents]
        found = [str(path) for path in chosen.values() if layout.cache not in path.parents]
        this.note(f"own {', '.join(ours) or 'none'}; found {', '.join(found) or 'none'}")
    return chosen


def build(layout: Layout, names: Sequence[str]) -> None:
    """Build what is not in the cache yet; a half-built program is never seen in its place."""
    missing = [name for name in names if not built(layout, name).exists()]
    if not missing:
        return
    go = golang.ensure(layout)
    for number, name in enumerate(missing, 1):
        source = SOURCES[name]
        progress = Progress("go build")
        packages = 0
        say("go build", f"{name} ({number} of {len(missing)})")

        def compiled(_line: str, name: str = name, progress: Progress = progress) -> None:
            nonlocal packages
            packages += 1
            progress.tick(f"{name}: {packages} packages compiled or fetched")

        with tempfile.TemporaryDirectory(dir=layout.scratch()) as scratch:
            product = Path(scratch) / name
            flags = f"-s -w {source.stamp}".strip()
            follow(
                [go.program, *_BUILD, "-tags", source.tags, "-ldflags", flags, "-o", product, source.package],
                compiled,
                timeout=_BUILD_SECONDS,
                cwd=PACKAGE / "gomod" / source.module,
                env={"CGO_ENABLED": "0", "GOWORK": "off", **go.env},
            )
            target = built(layout, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            product.replace(target)


def module_dir(layout: Layout, module: str) -> Path:
    """The unpacked source of a module that one of `gomod/` requires, in Go's own cache."""
    go = golang.ensure(layout)
    for folder in sorted((PACKAGE / "gomod").iterdir()):
        if module in (folder / "go.mod").read_text():
            run([go.program, "mod", "download", module], timeout=600, cwd=folder, env=go.env)
            words = ["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module]
            return Path(run([go.program, *words], timeout=60, cwd=folder, env=go.env).strip())
    raise ClusterError(f"no go.mod here requires {module}")
