"""Where things lie: the cache (kept between runs), the run directory (gone with the engine), the checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Layout:
    """All paths of one local cluster; two caches are two clusters that know nothing of each other."""

    cache: Path

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Layout:
        if own := environ.get("TREADLE_CACHE"):
            return cls(Path(own).expanduser().resolve())
        home = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "/")) / ".cache")
        return cls(Path(home) / "treadle")

    @property
    def key(self) -> str:
        """A short name of this cache, carried by what we make outside of it (bridge, cgroup, run_dir)."""
        return digest([str(self.cache)])[:8]

    @property
    def programs(self) -> Path:
        return self.cache / "programs"

    @property
    def go(self) -> Path:
        """Our own Go, with its modules and objects; empty where this machine has one that is new enough."""
        return self.cache / "go"

    @property
    def trees(self) -> Path:
        return self.cache / "rootfs"

    @property
    def wheels(self) -> Path:
        return self.cache / "wheels"

    @property
    def engine_data(self) -> Path:
        return self.cache / "engine"

    @property
    def run_dir(self) -> Path:
        """Sockets and the engine's exec root; short, because a socket's path has room for 107 bytes."""
        return Path(f"/run/treadle-{self.key}")

    @property
    def cgroup(self) -> str:
        return f"treadle-{self.key}"

    @property
    def bridge(self) -> str:
        return f"trd-{self.key}"

    @property
    def state_file(self) -> Path:
        return self.cache / "localcluster.json"

    @property
    def lock_file(self) -> Path:
        return self.cache / "localcluster.lock"

    def kubeconfig(self, cluster: str) -> Path:
        return self.cache / "kubeconfig" / cluster

    def clear_scratch(self) -> None:
        """Remove what killed commands left there; only for who holds the lock."""
        shutil.rmtree(self.cache / "scratch", ignore_errors=True)

    def scratch(self) -> Path:
        path = self.cache / "scratch"
        path.mkdir(parents=True, exist_ok=True)
        return path


def digest(parts: Iterable[str | bytes]) -> str:
    """A digest of the parts in their order; each is length-prefixed, so that parts cannot run together."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big"))
        total.update(data)
    return total.hexdigest()


def digest_files(paths: Iterable[Path], *more: str) -> str:
    """A digest of the files' names and contents; directories count with all that is in them."""
    parts: list[str | bytes] = list(more)
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                parts += [str(file.relative_to(path.parent)), file.read_bytes()]
    return digest(parts)
