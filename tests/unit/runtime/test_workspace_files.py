"""The workspace keeps its files inside, and its limits."""

import os
import threading
from pathlib import Path

import pytest

from treadle_api.resolved import ResolvedWorkspace
from treadle_runtime.workspace.files import Directory, WorkspaceError, media_type


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    root = tmp_path / "workspace"
    root.mkdir()
    (tmp_path / "secret").write_text("outside")
    return Directory(root, ResolvedWorkspace(max_bytes=100, max_file_bytes=60, max_files=3))


@pytest.mark.parametrize(
    "path", ["../secret", "a/../../secret", "/etc/passwd", "", "/", ".", "a\0b", "/workspace"]
)
def test_a_path_that_leads_elsewhere_is_refused(directory: Directory, path: str) -> None:
    with pytest.raises(WorkspaceError, match="no path of a file in the workspace"):
        directory.read(path)
    with pytest.raises(WorkspaceError):
        directory.write(path, b"x")


@pytest.mark.parametrize("path", ["a/b.md", "./a/b.md", "/workspace/a/b.md", "a//b.md"])
def test_a_path_has_one_spelling(directory: Directory, path: str) -> None:
    assert directory.relative(path) == "a/b.md"


def test_a_path_has_a_length(directory: Directory) -> None:
    with pytest.raises(WorkspaceError, match="512"):
        directory.relative("x" * 600)


def test_what_is_written_is_read_and_found(directory: Directory) -> None:
    directory.write("a/b.md", b"one", 0o600)
    directory.write("a/b.md", b"two", 0o755)
    assert directory.read("a/b.md") == b"two"
    assert directory.read("a/b.md", limit=1) == b"t"
    assert [(found.path, found.size, found.mode) for found in directory.scan()] == [("a/b.md", 3, 0o755)]
    directory.remove("a/b.md")
    directory.remove("a/b.md")
    assert directory.scan() == []


def test_a_link_is_never_followed(directory: Directory) -> None:
    os.symlink("../secret", directory.root / "link")
    os.symlink("..", directory.root / "up")
    for path in ("link", "up/secret"):
        with pytest.raises(WorkspaceError, match="cannot be opened"):
            directory.read(path)
        with pytest.raises(WorkspaceError, match="symbolic link"):
            directory.write(path, b"overwritten")
    with pytest.raises(WorkspaceError, match="symbolic link"):
        directory.scan()
    assert (directory.root.parent / "secret").read_text() == "outside"


def test_a_named_pipe_is_refused_and_blocks_nobody(directory: Directory) -> None:
    os.mkfifo(directory.root / "pipe")
    with pytest.raises(WorkspaceError, match="no regular file"):
        directory.scan()


@pytest.mark.parametrize(
    ("sizes", "names"),
    [([61], "maxFileBytes"), ([50, 51], "maxBytes"), ([1, 1, 1, 1], "maxFiles")],
)
def test_a_limit_is_named_before_it_is_passed(directory: Directory, sizes: list[int], names: str) -> None:
    *before, last = sizes
    for number, size in enumerate(before):
        directory.write(f"f{number}", b"x" * size)
    with pytest.raises(WorkspaceError, match=f"workspace.{names} allows"):
        directory.write("last", b"x" * last)
    assert len(directory.scan()) == len(before), "nothing is half written"


def test_a_limit_is_also_found_by_the_scan(directory: Directory) -> None:
    (directory.root / "big").write_bytes(b"x" * 61)
    with pytest.raises(WorkspaceError, match=r"big has 61 bytes, workspace\.maxFileBytes allows 60"):
        directory.scan()


def test_a_folder_is_no_file(directory: Directory) -> None:
    directory.write("a/b", b"x")
    with pytest.raises(WorkspaceError):
        directory.write("a", b"x")
    with pytest.raises(WorkspaceError, match="does not exist"):
        directory.read("a/c")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.md", "text/markdown"),
        ("a.CSV", "text/csv"),
        ("a.yaml", "application/yaml"),
        ("a", "application/octet-stream"),
    ],
)
def test_a_media_type_does_not_depend_on_the_image(path: str, kind: str) -> None:
    assert media_type(path) == kind


def test_a_file_that_is_being_written_is_no_file_yet(directory: Directory) -> None:
    directory.write("a.md", b"whole")
    (directory.root / ".treadle-writing-a.md").write_bytes(b"half")
    assert [found.path for found in directory.scan()] == ["a.md"]
    with pytest.raises(WorkspaceError):
        directory.write(".treadle-writing-x", b"x")


def test_a_scan_beside_a_writer_meets_no_vanished_file(directory: Directory) -> None:
    done = threading.Event()

    def write() -> None:
        for number in range(2000):
            directory.write("a.md", b"x" * (number % 50))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert [found.path for found in directory.scan()] in ([], ["a.md"])
    writer.join()
