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

    def stage(self, context: Path) -> str:
        """Copy the inputs to `context`; the name with a tag that is their digest.

        The digest is that of the copy: the checkout may change while we build, and a tag must not lie.
        """
        for part in (self.dockerfile, *self.sources):
            _copy(CHECKOUT / part, context / part)
        inputs = [context / part for part in (self.dockerfile, *self.sources)]
        tag = digest_files(inputs, self.base.tree.key(), self.base.public)[:12]
        return f"localhost/treadle-{self.key}:{tag}"


_PYTHON = Base(
    "python:3.13-slim-trixie",
    Tree("base", _SUITE, "minbase", ("ca-certificates", "python3", "python3-venv")),
)
_STORES = Base(
    "debian:trixie-slim",
    Tree(
        "stores-base",
        _SUITE,
        "minbase",
        ("ca-certificates", "postgresql", "redis-server"),
        # Postgres' query compiler: 150 MB that a development store does not need; without it `jit` stays off.
        left_out=("/usr/lib/*/libLLVM*", "/usr/lib/*/libz3*", "/usr/lib/postgresql/*/lib/*jit*"),
    ),
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
KEYS = tuple(image.key for image in OWN)
WITH_WHEELS = tuple(image.wheels for image in OWN if image.wheels)


def ensure(layout: Layout, engine: Engine, *, registry: Callable[[], bool]) -> dict[str, str]:
    """Build what is not in the engine's store; the names of all by key."""
    names: dict[str, str] = {}
    fresh: list[str] = []
    with rung("images") as this:
        for image in OWN:
            with tempfile.TemporaryDirectory(dir=layout.scratch()) as context:
                name = names[image.key] = image.stage(Path(context))
                if not engine.has_image(name):
                    base = _base(layout, engine, image.base, registry=registry)
                    _build(layout, engine, image, name, base, Path(context))
                    fresh.append(f"{image.key} built")
        this.note(", ".join(fresh) or "all present")
    return names


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


def _build(layout: Layout, engine: Engine, image: OwnImage, name: str, base: str, context: Path) -> None:
    collected = wheels.collect(layout, image.wheels) if image.wheels else None
    with rung(f"  {image.key}") as this:
        if collected is not None:
            shutil.copytree(collected, context / "wheels", copy_function=os.link)
        # Where wheels and the base's packages are at hand a build needs no network at all.
        network = "host" if base == image.base.public and collected is None else "none"
        words: list[str | Path] = ["build", "--quiet", "--build-arg", f"BASE={base}", "--network", network]
        words += ["--file", context / image.dockerfile, "--tag", name, context]
        engine.docker(*words, timeout=_BUILD_SECONDS)
        this.note(name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)
