"""What we started, on disk before we start it, so that `down` can undo it after any crash."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import ClusterError
from .identity import Process
from .narrate import say
from .waiting import wait_until


@dataclass
class PrivateEngine:
    """Our own dockerd. `process` is unknown between writing this and the engine's own pid file."""

    socket: str
    run_dir: str
    cgroup: str
    bridge: str
    process: Process | None = None
    rules: list[list[str]] = field(default_factory=list)
    forwarding_was_off: bool = False
    offline: bool = True


@dataclass
class Cluster:
    """A kind cluster of ours; the image ids that its nodes were given, and the newest image by key."""

    name: str
    kubeconfig: str
    nodes: int
    image: str
    ready: bool = False
    loaded: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)


@dataclass
class State:
    """Everything that exists because of us outside of the cache."""

    engine: PrivateEngine | None = None
    clusters: dict[str, Cluster] = field(default_factory=dict)
    host: str = ""
    modules_dir_made: bool = False

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(dataclasses.asdict(self), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    @classmethod
    def read(cls, path: Path) -> State:
        """The state on disk, or an empty one; a torn or foreign file is an error, not an empty state."""
        try:
            raw: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return cls()
        except ValueError as failure:
            raise ClusterError(f"{path} is not readable ({failure}); remove it after a look") from failure
        try:
            return cls(
                engine=_engine(raw["engine"]),
                clusters={name: Cluster(**one) for name, one in raw["clusters"].items()},
                host=raw["host"],
                modules_dir_made=raw["modules_dir_made"],
            )
        except (KeyError, TypeError) as failure:
            raise ClusterError(
                f"{path} was written by another version ({failure}); remove it after a look"
            ) from failure


def _engine(raw: dict[str, Any] | None) -> PrivateEngine | None:
    if raw is None:
        return None
    process = raw.pop("process")
    return PrivateEngine(process=Process(**process) if process else None, **raw)


@contextmanager
def locked(path: Path, *, seconds: float = 1800) -> Iterator[None]:
    """Only one `up` or `down` at a time; the kernel frees the lock of a killed one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:

        def take() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not take():
            say("lock", "another `localcluster` command is at work here; waiting for its end")
            wait_until("the lock of another `localcluster` command", take, seconds=seconds, every=0.5)
        yield
