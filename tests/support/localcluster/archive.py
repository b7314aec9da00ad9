"""Container images written by hand, in the form that `docker save` writes and containerd imports.

No engine is needed for it, and nothing of it stays in an engine's store.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """One image: its names, its layers as tar files (lowest first), and what it starts."""

    names: tuple[str, ...]
    layers: tuple[Path, ...]
    entrypoint: tuple[str, ...]


@dataclass
class Layer:
    """One layer's content by its path in the image: files of this machine, links, empty folders."""

    files: dict[str, Path] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        """The layer as a tar file; the same content gives the same bytes."""
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            for name, mode in sorted(self.folders.items()):
                tar.addfile(_entry(name, tarfile.DIRTYPE, mode))
            for name, source in sorted(self.files.items()):
                entry = _entry(name, tarfile.REGTYPE, 0o755)
                entry.size = source.stat().st_size
                with source.open("rb") as content:
                    tar.addfile(entry, content)
            for name, target in sorted(self.links.items()):
                entry = _entry(name, tarfile.SYMTYPE, 0o777)
                entry.linkname = target
                tar.addfile(entry)
        return path


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.type, entry.mode = kind, mode
    return entry


def save(path: Path, images: Iterable[Image]) -> None:
    """Write an archive of the images.

    The form is that of the docker image specification v1.2, "Combined Image JSON".
    """
    manifest = []
    written: set[str] = set()
    with tarfile.open(path, "w") as tar:

        def add(name: str, data: bytes) -> None:
            if name not in written:
                written.add(name)
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))

        for image in images:
            digests = [_sha256(layer) for layer in image.layers]
            for layer, digest in zip(image.layers, digests, strict=True):
                if f"{digest}.tar" not in written:
                    written.add(f"{digest}.tar")
                    tar.add(layer, f"{digest}.tar")
            config = json.dumps(_config(image, digests)).encode()
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            add(config_name, config)
            manifest.append(
                {
                    "Config": config_name,
                    "RepoTags": list(image.names),
                    "Layers": [f"{d}.tar" for d in digests],
                }
            )
        add("manifest.json", json.dumps(manifest).encode())


def _config(image: Image, digests: list[str]) -> dict[str, object]:
    return {
        "architecture": _ARCHITECTURES.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "config": {
            "Entrypoint": list(image.entrypoint),
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created_by": "localcluster"} for _ in digests],
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
