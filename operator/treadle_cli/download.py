"""An artifact, written only once its bytes are those that the receipt names."""

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from .errors import CliError


def listed(receipt: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The receipt's entry for `path`. Raises CliError that says what there is."""
    artifacts = receipt["payload"].get("artifacts") or []
    for entry in artifacts:
        if entry["path"] == path:
            found: Mapping[str, Any] = entry
            return found
    there = ", ".join(entry["path"] for entry in artifacts) or "nothing"
    raise CliError(f"the run delivered no file {path!r}", f"the receipt lists: {there}")


def target(path: str, output: str | None) -> Path:
    """Where the file goes: as asked, else its own name in this folder; nothing is overwritten unasked."""
    if output:
        return Path(output)
    name = PurePosixPath(path).name
    if name in {"", ".", ".."}:
        raise CliError(f"{path!r} has no file name of its own", "say where to with -o FILE")
    if Path(name).exists():
        raise CliError(f"{name} exists here", "say where to with -o FILE, which overwrites")
    return Path(name)


async def save(pieces: AsyncIterator[bytes], sha256: str, where: Path) -> int:
    """Write the checked bytes; how many. Raises CliError and leaves no file where they are others."""
    try:
        handle, name = tempfile.mkstemp(dir=where.parent, prefix=f".{where.name}.")
    except OSError as error:
        raise CliError(
            f"cannot write to {where.parent}: {error.strerror}", "say where to with -o FILE"
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            size = await _checked(pieces, sha256, file)
            os.fchmod(file.fileno(), 0o644)
        os.replace(name, where)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return size


async def print_out(pieces: AsyncIterator[bytes], sha256: str) -> int:
    """The checked bytes on standard output: nothing is printed before the check."""
    with tempfile.TemporaryFile() as file:
        size = await _checked(pieces, sha256, file)
        file.seek(0)
        while piece := file.read(65_536):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    return size


async def _checked(pieces: AsyncIterator[bytes], sha256: str, file: BinaryIO) -> int:
    digest, size = hashlib.sha256(), 0
    async for piece in pieces:
        digest.update(piece)
        size += len(piece)
        file.write(piece)
    if digest.hexdigest() != sha256:
        raise CliError(
            f"the bytes have sha256 {digest.hexdigest()}, the receipt says {sha256}",
            "nothing was written: fetch it again, and ask who runs the gateway if it stays so",
        )
    return size
