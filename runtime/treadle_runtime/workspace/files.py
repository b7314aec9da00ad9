"""The workspace as a directory: every path stays inside it, no symbolic link is ever followed.

Blocking calls; callers on the event loop use `asyncio.to_thread`.
"""

import contextlib
import mimetypes
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treadle_api.contract import WORKSPACE_PATH
from treadle_api.resolved import ResolvedWorkspace

PATH_LIMIT: Final = 512
"""Characters of a path relative to the workspace."""
_WRITING: Final = ".treadle-writing-"
"""How names of files that are being written begin: no file of the workspace, whatever a scan meets."""
_PERMISSIONS: Final = 0o777
_DEFAULT_MODE: Final = 0o644
_MEDIA_TYPES: Final = {
    # Slim images carry no mime.types, and a receipt must not depend on the image.
    ".csv": "text/csv",
    ".htm": "text/html",
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".py": "text/x-python",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


class WorkspaceError(Exception):
    """A path or a file that the workspace does not take; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Found:
    """One regular file: `path` relative with `/`, `stamp` changes whenever its bytes or mode may have."""

    path: str
    size: int
    mode: int
    stamp: tuple[int, int, int, int]


def media_type(path: str) -> str:
    suffix = os.path.splitext(path)[1].lower()
    guessed = _MEDIA_TYPES.get(suffix) or mimetypes.guess_type(path, strict=True)[0]
    return guessed or "application/octet-stream"


class Directory:
    """The files below `root`, within `limits`."""

    def __init__(self, root: Path, limits: ResolvedWorkspace) -> None:
        self.root = root
        self.limits = limits

    def prepare(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)

    def relative(self, path: str) -> str:
        """`path` in its one spelling. Accepts `a/b`, `./a/b`, `/workspace/a/b`.

        Raises WorkspaceError for everything that leads elsewhere.
        """
        for prefix in (str(self.root), WORKSPACE_PATH):
            if path == prefix or path.startswith(prefix + "/"):
                path = path[len(prefix) :].lstrip("/")
                break
        parts = [part for part in path.split("/") if part not in ("", ".")]
        reserved = any(part.startswith(_WRITING) for part in parts)
        if not parts or path.startswith("/") or ".." in parts or "\0" in path or reserved:
            raise WorkspaceError(
                f"{path!r} is no path of a file in the workspace: use a relative one, without .."
            )
        spelled = "/".join(parts)
        if len(spelled) > PATH_LIMIT:
            raise WorkspaceError(f"a path may have {PATH_LIMIT} characters, this one has {len(spelled)}")
        return spelled

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """The file's bytes, at most `limit` of them. Raises WorkspaceError where there is no such file."""
        with self._parent(path, create=False) as (folder, name):
            descriptor = self._open(name, os.O_RDONLY, folder, path)
        with os.fdopen(descriptor, "rb") as file:
            return file.read() if limit is None else file.read(limit)

    def write(self, path: str, data: bytes, mode: int = _DEFAULT_MODE) -> None:
        """Replace or create a file and its folders, whole or not at all.

        Raises WorkspaceError where a limit would be passed.
        """
        spelled = self.relative(path)
        self._fits(spelled, len(data))
        with self._parent(spelled, create=True) as (folder, name):
            temporary = f"{_WRITING}{name[:200]}"
            descriptor = self._open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, folder, spelled)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), mode & _PERMISSIONS)
            try:
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                os.unlink(temporary, dir_fd=folder)
                raise WorkspaceError(f"{spelled} cannot be written: {error.strerror}") from error

    def remove(self, path: str) -> None:
        with self._parent(path, create=False) as (folder, name), contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)

    def scan(self) -> list[Found]:
        """Every file, sorted by path.

        Raises WorkspaceError for a symbolic link or a special file (they cannot be restored elsewhere)
        and where the number or the sum of sizes is over the limit.
        """
        found = sorted(self._walk(self.root, ""), key=lambda file: file.path)
        self.check(
            len(found), sum(file.size for file in found), max(found, key=lambda f: f.size, default=None)
        )
        return found

    def check(self, files: int, total: int, largest: Found | None) -> None:
        limits = self.limits
        if largest is not None and largest.size > limits.max_file_bytes:
            raise WorkspaceError(
                f"{largest.path} has {largest.size} bytes, "
                f"workspace.maxFileBytes allows {limits.max_file_bytes}"
            )
        if files > limits.max_files:
            raise WorkspaceError(
                f"the workspace holds {files} files, workspace.maxFiles allows {limits.max_files}"
            )
        if total > limits.max_bytes:
            raise WorkspaceError(
                f"the workspace holds {total} bytes, workspace.maxBytes allows {limits.max_bytes}"
            )

    def _walk(self, folder: Path, prefix: str) -> Iterator[Found]:
        """Files as they are met. What vanishes while it is looked at, as under a tool, is not there."""
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(_WRITING):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                path = f"{prefix}{entry.name}"
                if stat.S_ISDIR(status.st_mode):
                    yield from self._walk(Path(entry.path), f"{path}/")
                elif stat.S_ISREG(status.st_mode):
                    stamp = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_mode)
                    yield Found(path, status.st_size, status.st_mode & _PERMISSIONS, stamp)
                else:
                    kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no regular file"
                    raise WorkspaceError(
                        f"{path} is {kind}: the workspace keeps regular files only; remove it"
                    )

    def _fits(self, path: str, size: int) -> None:
        others = [file for file in self._walk(self.root, "") if file.path != path]
        total = size + sum(file.size for file in others)
        self.check(len(others) + 1, total, Found(path, size, 0, (0, 0, 0, 0)))

    @contextlib.contextmanager
    def _parent(self, path: str, *, create: bool) -> Iterator[tuple[int, str]]:
        """A descriptor of the file's folder, reached step by step without following a link."""
        *folders, name = self.relative(path).split("/")
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder in folders:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=descriptor)
                inner = self._open(folder, os.O_RDONLY | os.O_DIRECTORY, descriptor, path)
                os.close(descriptor)
                descriptor = inner
            yield descriptor, name
        finally:
            os.close(descriptor)

    @staticmethod
    def _open(name: str, flags: int, folder: int, path: str) -> int:
        try:
            # O_NONBLOCK: a named pipe must not hold us up.
            return os.open(
                name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, _DEFAULT_MODE, dir_fd=folder
            )
        except FileNotFoundError as error:
            raise WorkspaceError(f"{path} does not exist in the workspace") from error
        except OSError as error:
            raise WorkspaceError(f"{path} cannot be opened: {error.strerror}") from error
