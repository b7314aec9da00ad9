"""Images written by hand, and images with layers left out."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from support.localcluster.archive import Image, Layer, save
from support.localcluster.errors import ClusterError
from support.localcluster.load import chain_ids, thin


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {
            entry.name: (tar.extractfile(entry) or pytest.fail(entry.name)).read()
            for entry in tar
            if entry.isfile()
        }


@pytest.fixture
def layers(tmp_path: Path) -> list[Path]:
    program = tmp_path / "program"
    program.write_bytes(b"#!/bin/sh\n")
    below = Layer(files={"usr/bin/one": program}, folders={"tmp": 0o1777}).write(tmp_path / "below.tar")
    above = Layer(files={"usr/bin/two": program}, links={"bin": "usr/bin"}).write(tmp_path / "above.tar")
    return [below, above]


def saved(tmp_path: Path, layers: list[Path]) -> Path:
    save(
        tmp_path / "saved.tar", [Image(("localhost/x:1", "localhost/y:1"), tuple(layers), ("/usr/bin/two",))]
    )
    return tmp_path / "saved.tar"


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_a_layer_keeps_modes_links_and_contents(layers: list[Path]) -> None:
    with tarfile.open(layers[0]) as tar:
        assert tar.getmember("usr/bin/one").mode == 0o755
        assert tar.getmember("tmp").mode == 0o1777
    with tarfile.open(layers[1]) as tar:
        assert tar.getmember("bin").linkname == "usr/bin"


def test_the_same_content_gives_the_same_layer(tmp_path: Path) -> None:
    layer = Layer(links={"b": "x", "a": "y"})
    one, other = layer.write(tmp_path / "one"), Layer(links={"a": "y", "b": "x"}).write(tmp_path / "other")
    assert one.read_bytes() == other.read_bytes()


def test_an_archive_names_its_layers_by_their_content(tmp_path: Path, layers: list[Path]) -> None:
    held = members(saved(tmp_path, layers))
    (only,) = json.loads(held["manifest.json"])
    config = json.loads(held[only["Config"]])
    assert only["RepoTags"] == ["localhost/x:1", "localhost/y:1"]
    assert config["rootfs"]["diff_ids"] == [sha256(held[name]) for name in only["Layers"]]
    assert config["config"]["Entrypoint"] == ["/usr/bin/two"]


def test_a_shared_layer_is_written_once(tmp_path: Path, layers: list[Path]) -> None:
    images = [Image((f"x:{number}",), tuple(layers), ("sh",)) for number in (1, 2)]
    save(tmp_path / "saved.tar", images)
    with tarfile.open(tmp_path / "saved.tar") as tar:
        names = tar.getnames()
    assert len(names) == len(set(names)) == 4  # two layers, one configuration, the manifest


def thinned(
    tmp_path: Path, layers: list[Path], left_out: list[bool]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    thin(saved(tmp_path, layers), tmp_path / "thin.tar", "localhost/x:1", left_out=left_out)
    held = members(tmp_path / "thin.tar")
    (named,) = json.loads(held["index.json"])["manifests"]
    assert named["annotations"] == {"io.containerd.image.name": "localhost/x:1"}
    manifest: dict[str, Any] = json.loads(held[f"blobs/{named['digest'].replace(':', '/')}"])
    return manifest, held


def test_a_layer_that_is_left_out_is_still_named_with_digest_and_size(
    tmp_path: Path, layers: list[Path]
) -> None:
    manifest, held = thinned(tmp_path, layers, [True, False])
    contents = [layer.read_bytes() for layer in layers]
    assert [layer["digest"] for layer in manifest["layers"]] == [sha256(content) for content in contents]
    assert [layer["size"] for layer in manifest["layers"]] == [len(content) for content in contents]
    kept = [f"blobs/{sha256(content).replace(':', '/')}" in held for content in contents]
    assert kept == [False, True]


def test_without_anything_to_leave_out_the_archive_is_whole(tmp_path: Path, layers: list[Path]) -> None:
    manifest, held = thinned(tmp_path, layers, [False, False])
    for blob in (manifest["config"], *manifest["layers"]):
        content = held[f"blobs/{blob['digest'].replace(':', '/')}"]
        assert (sha256(content), len(content)) == (blob["digest"], blob["size"])


def test_an_archive_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.tar"
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("manifest.json")
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    with pytest.raises(ClusterError, match="localhost/x:1"):
        thin(path, tmp_path / "thin.tar", "localhost/x:1", left_out=[])


def test_a_chain_id_depends_on_all_layers_below() -> None:
    one, two, three = (sha256(name) for name in (b"1", b"2", b"3"))
    second = sha256(f"{one} {two}".encode())
    assert chain_ids([one, two, three]) == [one, second, sha256(f"{second} {three}".encode())]
    assert chain_ids([]) == []
