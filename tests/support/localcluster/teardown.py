"""Undoing what the state file names: a pure plan, then its steps. It works after any crash."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .commands import answers, run
from .engine import Engine
from .errors import CommandFailed
from .identity import Process
from .layout import Layout
from .narrate import say
from .private_engine import NETWORK
from .state import PrivateEngine, State
from .waiting import wait_until

_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Step:
    """One thing to undo: `kind` chooses how, `subject` says what."""

    kind: str
    subject: str


def plan(state: State, *, only: str | None = None) -> list[Step]:
    """What has to be undone, in order. With `only`, that cluster alone while others use the engine, too."""
    chosen = [name for name in state.clusters if only in (None, name)]
    steps = [Step("cluster", name) for name in chosen]
    if len(chosen) < len(state.clusters):
        return steps
    if engine := state.engine:
        steps += [Step("network", NETWORK), Step("engine", engine.run_dir)]
        steps += [Step("helpers", engine.run_dir), Step("cgroup", engine.cgroup)]
        steps += [Step("mounts", engine.run_dir), Step("bridge", engine.bridge)]
        steps += [Step("rule", " ".join(rule)) for rule in engine.rules]
        if engine.forwarding_was_off:
            steps.append(Step("forwarding", "off"))
        steps.append(Step("folder", engine.run_dir))
    if state.modules_dir_made:
        steps.append(Step("empty folder", "/lib/modules"))
    return steps


class Teardown:
    """Carries out a plan. Every step may find its subject gone, or half made."""

    def __init__(self, layout: Layout, state: State) -> None:
        self._layout = layout
        self._state = state
        self._engine = Engine(state.host) if state.host else None
        self._engine_answers = self._engine is not None and self._engine.answers()
        self._how: dict[str, Callable[[str], None]] = {
            "cluster": self._cluster,
            "network": self._network,
            "engine": self._stop_engine,
            "helpers": end_helpers,
            "cgroup": end_cgroup,
            "mounts": self._unmount,
            "bridge": _bridge,
            "rule": self._rule,
            "forwarding": _forwarding_off,
            "folder": _remove_run_dir,
            "empty folder": lambda path: _rmdir(Path(path)),
        }

    def carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            say("down", f"{step.kind}: {step.subject}")
            self._how[step.kind](step.subject)
            if step.kind == "cluster":
                self._state.clusters.pop(step.subject, None)
                self._state.write(self._layout.state_file)
        if not self._state.clusters:
            self._layout.state_file.unlink(missing_ok=True)

    def _cluster(self, name: str) -> None:
        cluster = self._state.clusters[name]
        if self._engine is not None and self._engine_answers:
            label = f"label=io.x-k8s.kind.cluster={name}"
            with contextlib.suppress(CommandFailed):
                containers = self._engine.docker(
                    "ps", "--all", "--quiet", "--filter", label, timeout=60
                ).split()
                if containers:
                    self._engine.docker("rm", "--force", "--volumes", *containers, timeout=180)
        Path(cluster.kubeconfig).unlink(missing_ok=True)

    def _network(self, name: str) -> None:
        if self._engine is not None and self._engine_answers:
            answers(["docker", "network", "rm", name], timeout=60, env=self._engine.env)

    def _stop_engine(self, _run_dir: str) -> None:
        engine = self._state.engine
        assert engine is not None
        if process := engine_process(engine):
            process.stop(grace=60)

    def _unmount(self, run_dir: str) -> None:
        roots = (f"{run_dir}/", f"{self._layout.engine_data}/")
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for path in sorted((m for m in mounts if m.startswith(roots)), key=len, reverse=True):
            answers(["umount", "--lazy", path], timeout=30)

    def _rule(self, rule: str) -> None:
        words = ["-D" if word == "-I" else word for word in rule.split()]
        answers(["iptables", "-w", *words], timeout=20)


def engine_process(engine: PrivateEngine) -> Process | None:
    """Our dockerd, if it runs: by the state file, or by its own pid file where we were killed before we knew.

    A pid from the pid file counts only if that process was started with our configuration file.
    """
    if engine.process is not None:
        return engine.process if engine.process.alive() else None
    try:
        pid = int((Path(engine.run_dir) / "docker.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (OSError, ValueError):
        return None
    return Process.of(pid) if f"{engine.run_dir}/daemon.json" in words else None


def end_helpers(run_dir: str) -> None:
    """End what a killed engine leaves: its containerd and the shims, known by paths in our run directory."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (process := Process.of(int(entry.name))):
            words = _read(entry / "cmdline").split("\0")
            if any(word.startswith(f"{run_dir}/") for word in words[1:]):
                process.stop(grace=5)


def end_cgroup(name: str) -> None:
    """Kill what still runs in our cgroup (an engine was killed, its containers not), then remove it."""
    tops = [path for path in (_CGROUPS / name, *_CGROUPS.glob(f"*/{name}")) if path.is_dir()]

    def empty() -> bool:
        pids = {
            int(word) for top in tops for file in top.rglob("cgroup.procs") for word in _read(file).split()
        }
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    wait_until(f"end of the processes in cgroup {name}", empty, seconds=30)
    for top in tops:
        for folder in sorted((p for p in (top, *top.rglob("*")) if p.is_dir()), key=lambda p: -len(p.parts)):
            _rmdir(folder)


def _read(file: Path) -> str:
    """The content, or nothing where the process or cgroup behind the file is gone."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _forwarding_off(_subject: str) -> None:
    Path("/proc/sys/net/ipv4/ip_forward").write_text("0\n")


def _bridge(name: str) -> None:
    answers(["ip", "link", "delete", name], timeout=20)


def _remove_run_dir(path: str) -> None:
    if Path(path).name.startswith("treadle-"):
        run(["rm", "-rf", "--one-file-system", path], timeout=60)


def _rmdir(path: Path) -> None:
    with contextlib.suppress(OSError):  # not empty: then it is not ours alone
        path.rmdir()
