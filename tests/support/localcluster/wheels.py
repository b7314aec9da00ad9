"""Wheels for an image, collected on this machine by hash, so that its build needs no way out."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from . import debian
from .commands import answers, follow, run
from .errors import ClusterError
from .layout import CHECKOUT, Layout, digest_files
from .narrate import Progress, rung

PYTHON = "3.13"  # of both bases: python:3.13-slim-trixie and Debian trixie
_GLIBC = range(41, 16, -1)  # trixie's glibc is 2.41; a wheel for any older one fits
_DOWNLOAD_SECONDS = 900
_LEGACY = ("manylinux2014", "manylinux2010", "manylinux1")
# Which of the lock's lines the image wants: pip reads markers for its own Python, not for --python-version.
_SELECT = """
import re, sys
from pip._vendor.packaging.markers import Marker
target = {"python_version": sys.argv[1], "python_full_version": sys.argv[1] + ".0", "sys_platform": "linux",
          "platform_system": "Linux", "os_name": "posix", "implementation_name": "cpython",
          "platform_python_implementation": "CPython"}
for entry in re.split(r"\\n(?=\\S)", sys.stdin.read()):
    head, _, _ = entry.partition(" \\\\")
    name, _, marker = head.partition(";")
    if not marker or Marker(marker.strip()).evaluate(target):
        print(entry.replace(head, name.strip(), 1))
"""


def collect(layout: Layout, image: str) -> Path:
    """A folder with every wheel of `<image>/requirements.lock`, their hashes checked by pip."""
    lock = CHECKOUT / image / "requirements.lock"
    target = layout.wheels / f"{image}-{digest_files([lock], PYTHON, os.uname().machine)[:12]}"
    if target.exists():
        return target
    python = python_with_pip()
    with rung("wheels") as this, tempfile.TemporaryDirectory(dir=layout.scratch()) as scratch:
        wanted = Path(scratch) / "requirements.txt"
        wanted.write_text(run([python, "-c", _SELECT, PYTHON], stdin=lock.read_text(), timeout=60))
        fresh = Path(scratch) / "wheels"
        lines: list[str] = []
        progress = Progress("wheels")

        def downloaded(line: str) -> None:
            lines.append(line)
            progress.tick(f"{image}: {sum(word.startswith('Collecting') for word in lines)} packages")

        command = [python, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
        command += ["--python-version", PYTHON, "--implementation", "cp", *_platforms()]
        follow(
            [*command, "--dest", str(fresh), "--requirement", str(wanted)],
            downloaded,
            timeout=_DOWNLOAD_SECONDS,
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(fresh, target)
        this.note(f"{image}: {len(list(target.iterdir()))} wheels")
    return target


def _platforms() -> list[str]:
    machine = os.uname().machine
    tags = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC]
    tags += [f"{name}_{machine}" for name in _LEGACY] + [f"linux_{machine}"]
    return [word for tag in tags for word in ("--platform", tag)]


def python_with_pip() -> str:
    """This Python, else Debian's; pip is installed from there where neither has it."""
    for python in (sys.executable, "/usr/bin/python3"):
        if answers([python, "-c", "import pip"], timeout=30):
            return python
    debian.install(["python3-pip"], "Python packages are to be fetched and this Python has no pip")
    if answers(["/usr/bin/python3", "-c", "import pip"], timeout=30):
        return "/usr/bin/python3"
    raise ClusterError("no Python with pip: install one, Python packages are fetched with it")
