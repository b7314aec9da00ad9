"""kind itself: create, wait, reuse, load."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from . import kind_config
from .commands import answers, follow, run
from .engine import Engine
from .errors import ClusterError, CommandFailed
from .kind_config import Host
from .layout import Layout
from .narrate import rung
from .state import Cluster, State

_CREATE_SECONDS = 300  # a kubelet that does not come up makes kind wait for ever
_READY_SECONDS = 180
_MODULES = Path("/lib/modules")


class Tools:
    """kind and kubectl, bound to an engine and a kubeconfig."""

    def __init__(self, programs: Mapping[str, Path], engine: Engine, kubeconfig: Path | str) -> None:
        self._programs = programs
        self.env = {**engine.env, "KUBECONFIG": str(kubeconfig)}

    def kind(self, *words: str | Path, timeout: float) -> str:
        return run([self._programs["kind"], *words], timeout=timeout, env=self.env)

    def kubectl(self, *words: str | Path, timeout: float = 30) -> str:
        return run([self._programs["kubectl"], *words], timeout=timeout, env=self.env)

    def follow_kind(self, *words: str | Path, timeout: float) -> None:
        lines: list[str] = []
        follow([self._programs["kind"], *words], lines.append, timeout=timeout, env=self.env)

    def healthy(self, nodes: int) -> bool:
        """Whether the API server says it is ready and every node that we asked for is Ready."""
        kubectl = self._programs["kubectl"]
        if not answers(
            [kubectl, "get", "--raw", "/readyz", "--request-timeout=5s"], timeout=10, env=self.env
        ):
            return False
        wanted = '{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'
        try:
            ready = self.kubectl(
                "get", "nodes", "-o", f"jsonpath={wanted}", "--request-timeout=5s", timeout=10
            )
        except CommandFailed:
            return False
        return ready.split().count("True") >= nodes


def ensure(
    layout: Layout, state: State, engine: Engine, tools: Tools, image: str, *, name: str, nodes: int
) -> Cluster:
    """A healthy cluster of this name; a broken one of ours is replaced."""
    with rung("cluster") as this:
        known = state.clusters.get(name)
        if known and known.nodes != nodes:
            raise ClusterError(
                f"cluster {name} runs with {known.nodes} node(s), {nodes} are asked for: "
                f"`down --name {name}` first, or choose another --name"
            )
        if known and known.ready and tools.healthy(nodes):
            this.note(f"{name} runs and is healthy")
            return known
        if known or name in tools.kind("get", "clusters", timeout=60).split():
            _only_ours(state, name)
            tools.kind("delete", "cluster", "--name", name, timeout=120)
        cluster = _create(layout, state, engine, tools, image, name=name, nodes=nodes)
        this.note(f"{name} created, {nodes} node(s)")
    with rung("ready") as this:
        wait_ready(tools)
        cluster.ready = True
        state.write(layout.state_file)
        this.note("nodes Ready, DNS answers")
    return cluster


def _only_ours(state: State, name: str) -> None:
    if name not in state.clusters and state.engine is None:
        raise ClusterError(
            f"the engine holds a kind cluster named {name} that we did not make: "
            f"choose another --name, or remove it with `kind delete cluster --name {name}`"
        )


def _create(
    layout: Layout, state: State, engine: Engine, tools: Tools, image: str, *, name: str, nodes: int
) -> Cluster:
    host = Host(engine.cgroup_version(), engine.lets_containers_lower_oom_score(image))
    ports = kind_config.free_ports()
    kubeconfig = layout.kubeconfig(name)
    kubeconfig.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kubeconfig.unlink(missing_ok=True)
    if not _MODULES.exists() and os.geteuid() == 0:
        state.modules_dir_made = True  # kind mounts it into its nodes, and so it comes to be
    cluster = Cluster(name, str(kubeconfig), nodes, image, ports=ports)
    state.clusters[name] = cluster
    state.write(layout.state_file)

    configuration = layout.scratch() / f"kind-{name}.yaml"
    configuration.write_text(kind_config.render(host, nodes=nodes, ports=ports))
    try:
        command: list[str | Path] = [
            "create",
            "cluster",
            "--name",
            name,
            "--image",
            image,
            "--config",
            configuration,
            "--wait",
            "150s",
        ]
        tools.follow_kind(*command, timeout=_CREATE_SECONDS)
    except CommandFailed:
        logs = layout.cache / "logs" / name
        with contextlib.suppress(CommandFailed):
            tools.kind("export", "logs", logs, "--name", name, timeout=120)
        with contextlib.suppress(CommandFailed):
            tools.kind("delete", "cluster", "--name", name, timeout=120)
        raise
    kubeconfig.chmod(0o600)
    return cluster


def wait_ready(tools: Tools) -> None:
    """kind waits for the control plane alone; pods want the other nodes and DNS too."""
    limit = f"--timeout={_READY_SECONDS}s"
    tools.kubectl("wait", "--for=condition=Ready", "nodes", "--all", limit, timeout=_READY_SECONDS + 10)
    tools.kubectl(
        "-n", "kube-system", "rollout", "status", "deployment/coredns", limit, timeout=_READY_SECONDS + 10
    )
    # Pods cannot be created before the controller has made it.
    tools.kubectl("wait", "--for=create", "serviceaccount/default", limit, timeout=_READY_SECONDS + 10)
