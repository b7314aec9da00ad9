"""Our images, built by the ordinary Dockerfiles and named after what is in them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import debian, wheels
from .debian import Tree
from .engine import Engine
from .errors import CommandFailed
from .layout import CHECKOUT, Layout, digest_files
from .narrate import rung, say

_PULL_SECONDS = 300
_BUILD_SECONDS = 900
_SUITE = "trixie"


@dataclass(frozen=True)
class Base:
    """What a Dockerfile starts from: a public image, or Debian packages where that cannot be pulled."""

    public: str
    tree: Tree

    def local_name(self) -> str:
        return f"localhost/treadle-{self.tree.name}:{self.tree.key()}"


@dataclass(frozen=True)
class OwnImage:
    """One of our images: its Dockerfile, the parts of the checkout that it copies, its base."""

    key: str
    dockerfile: str
    sources: tuple[str, ...]
    base: Base
    wheels: str | None = None

    def name(self) -> str:
        """The tag is a digest of all inputs, so that a pod's image says what code it holds."""
        inputs = [CHECKOUT / part for part in (self.dockerfile, *self.sources)]
        tag = digest_files(inputs, self.base.tree.key(), self.base.public)[:12]
        return f"localhost/treadle-{self.key}:{tag}"


_PYTHON = Base(
    "python:3.13-slim-trixie",
    Tree("base", _SUITE, "minbase", ("ca-certificates", "python3", "python3-venv")),
)
_STORES = Base(
    "debian:trixie-slim",
    Tree("stores-base", _SUITE, "minbase", ("ca-certificates", "postgresql", "redis-server")),
)
OWN = (
    OwnImage(
        "operator",
        "operator/Dockerfile",
        (
            "operator/requirements.lock",
            *(
                "crds/treadle_api",
                "operator/treadle_operator",
                "runtime/treadle_store",
                "runtime/treadle_gateway",
            ),
        ),
        _PYTHON,
        "operator",
    ),
    OwnImage(
        "runtime",
        "runtime/Dockerfile",
        ("runtime/requirements.lock", "crds/treadle_api", "runtime/treadle_store", "runtime/treadle_runtime"),
        _PYTHON,
        "runtime",
    ),
    OwnImage("devstore", "charts/dev-stores/Dockerfile", ("charts/dev-stores/entry",), _STORES),
)
NAMES = tuple(image.key for image in OWN)
WITH_WHEELS = tuple(image.wheels for image in OWN if image.wheels)


def names() -> dict[str, str]:
    """The images of this checkout by key."""
    return {image.key: image.name() for image in OWN}


def ensure(layout: Layout, engine: Engine, *, registry: Callable[[], bool]) -> list[str]:
    """Build what is not in the engine's store; the names of all."""
    with rung("images") as this:
        fresh = [image for image in OWN if not engine.has_image(image.name())]
        for image in fresh:
            _build(layout, engine, image, _base(layout, engine, image.base, registry=registry))
        this.note(", ".join(f"{image.key} built" for image in fresh) or "all present")
    return list(names().values())


def _base(layout: Layout, engine: Engine, base: Base, *, registry: Callable[[], bool]) -> str:
    for name in (base.public, base.local_name()):
        if engine.has_image(name):
            return name
    if registry():
        try:
            engine.docker("pull", "--quiet", base.public, timeout=_PULL_SECONDS)
        except CommandFailed as failure:
            say(
                "base image",
                f"pull of {base.public} failed ({failure.reason}); made from Debian packages instead",
            )
        else:
            return base.public
    with rung("base image") as this, debian.tarball(layout, base.tree).open("rb") as tar:
        engine.docker("import", "-", base.local_name(), timeout=300, stdin=tar)
        this.note(base.local_name())
    return base.local_name()


def _build(layout: Layout, engine: Engine, image: OwnImage, base: str) -> None:
    collected = wheels.collect(layout, image.wheels) if image.wheels else None
    with rung(f"  {image.key}") as this, tempfile.TemporaryDirectory(dir=layout.scratch()) as folder:
        context = Path(folder)
        for part in (image.dockerfile, *image.sources):
            _stage(CHECKOUT / part, context / part)
        if collected is not None:
            shutil.copytree(collected, context / "wheels", copy_function=os.link)
        words: list[str | Path] = [
            "build",
            "--quiet",
            "--build-arg",
            f"BASE={base}",
            "--file",
            context / image.dockerfile,
        ]
        # Where the wheels and the base's packages are at hand a build needs no network at all.
        words += ["--network", "none" if base != image.base.public else "host"]
        engine.docker(*words, "--tag", image.name(), context, timeout=_BUILD_SECONDS)
        this.note(image.name())


def _stage(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)
