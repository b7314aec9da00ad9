"""Handing images to the nodes: only those layers that a node does not have yet.

`kind load` sends whole images. Ours differ from one code change to the next in their last layers alone, so
the archive that goes to a node leaves out every layer whose snapshot the node has unpacked already.
containerd's importer reads a layer only when it unpacks it, and what is unpacked it leaves as it is.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from .cluster import Tools
from .commands import run
from .engine import Engine
from .errors import ClusterError
from .layout import Layout
from .narrate import rung
from .state import Cluster, State

_SECONDS = 600
_CTR = ("ctr", "--namespace", "k8s.io")
_IMPORT = (*_CTR, "images", "import", "--snapshotter", "overlayfs", "-")
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_LAYOUT = b'{"imageLayoutVersion": "1.0.0"}'
_GZIP = b"\x1f\x8b"


def load(
    layout: Layout, state: State, engine: Engine, tools: Tools, cluster: Cluster, images: dict[str, str]
) -> None:
    """Hand the nodes those images that they do not have yet."""
    with rung("load") as this:
        ids = {image: engine.image_id(image) for image in images.values()}
        fresh = [image for image in ids if cluster.loaded.get(image) != ids[image]]
        nodes = tools.kind("get", "nodes", "--name", cluster.name, timeout=60).split() if fresh else []
        sent = 0
        for image in fresh:
            sent += _to_nodes(layout, engine, nodes, image)
            cluster.loaded[image] = ids[image]
            state.write(layout.state_file)
        cluster.images = images
        state.write(layout.state_file)
        this.note(f"{len(fresh)} new, {sent >> 20} MB sent" if fresh else "nothing new")


def _to_nodes(layout: Layout, engine: Engine, nodes: Sequence[str], image: str) -> int:
    layers = json.loads(engine.docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", image))
    unpacked = frozenset.intersection(*(_unpacked(engine, node) for node in nodes))
    left_out = [chain in unpacked for chain in chain_ids(layers)]
    with tempfile.TemporaryDirectory(dir=layout.scratch()) as folder:
        saved, archive = Path(folder) / "saved.tar", Path(folder) / "thin.tar"
        engine.docker("save", "--output", saved, image, timeout=_SECONDS)
        thin(saved, archive, image, left_out=left_out)
        for node in nodes:
            command = [
                "docker",
                "exec",
                "-i",
                node,
                *_CTR,
                "images",
                "import",
                "--snapshotter",
                "overlayfs",
                "-",
            ]
            with archive.open("rb") as content:
                run(command, timeout=_SECONDS, env=engine.env, stdin=content)
        return archive.stat().st_size * len(nodes)


def chain_ids(layers: Sequence[str]) -> list[str]:
    """The name of each layer's snapshot, made of the layers below it too (OCI image-spec, "ChainID")."""
    chain: list[str] = []
    for layer in layers:
        above = f"{chain[-1]} {layer}".encode() if chain else None
        chain.append(f"sha256:{hashlib.sha256(above).hexdigest()}" if above else layer)
    return chain


def _unpacked(engine: Engine, node: str) -> frozenset[str]:
    """The keys of the committed snapshots of a node."""
    listed = engine.docker(
        "exec", node, *_CTR, "snapshots", "--snapshotter", "overlayfs", "list"
    ).splitlines()
    return frozenset(line.split()[0] for line in listed if line.split()[-1:] == ["Committed"])


def thin(saved: Path, target: Path, image: str, *, left_out: Sequence[bool]) -> None:
    """Rewrite what `docker save` wrote as an OCI layout (image-layout.md v1.0) without some of its layers.

    `left_out` says for each layer, lowest first, whether to leave it out; such a layer is named in the
    manifest with its digest and size like any other.
    """
    with tarfile.open(saved) as whole, tarfile.open(target, "w") as tar:

        def content(name: str) -> io.BufferedReader:
            file = whole.extractfile(name)
            if not isinstance(file, io.BufferedReader):
                raise ClusterError(f"`docker save {image}` wrote no {name}")
            return file

        (only,) = json.load(content("manifest.json"))
        config = content(only["Config"]).read()
        layers = []
        for name, skip in zip(only["Layers"], left_out, strict=True):
            digest = f"sha256:{hashlib.file_digest(content(name), 'sha256').hexdigest()}"
            zipped = content(name).read(2) == _GZIP
            size = whole.getmember(name).size
            layers.append(
                {"mediaType": f"{_LAYER}+gzip" if zipped else _LAYER, "digest": digest, "size": size}
            )
            if not skip:
                _add(tar, _blob(digest), content(name), size)
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _descriptor(_CONFIG, config),
                "layers": layers,
            }
        ).encode()
        named = {**_descriptor(_MANIFEST, manifest), "annotations": {"io.containerd.image.name": image}}
        index = json.dumps({"schemaVersion": 2, "manifests": [named]}).encode()
        _add(tar, _blob(_digest(config)), io.BytesIO(config), len(config))
        _add(tar, _blob(_digest(manifest)), io.BytesIO(manifest), len(manifest))
        _add(tar, "oci-layout", io.BytesIO(_LAYOUT), len(_LAYOUT))
        _add(tar, "index.json", io.BytesIO(index), len(index))


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    tar.addfile(member, content)
