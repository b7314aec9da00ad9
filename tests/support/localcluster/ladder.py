"""The rungs in their order, from nothing to a cluster with our images."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from . import cluster, debian, images, load, node_image, private_engine
from .cluster import Tools
from .engine import Engine, NoEngine, ask
from .errors import ClusterError, CommandFailed
from .layout import Layout
from .narrate import rung, say
from .programs import client_programs, clients
from .settings import Settings
from .state import Cluster, State
from .teardown import Teardown, engine_process, plan


class Registry:
    """Whether images can be pulled: asked once, and only when something would have to be pulled."""

    def __init__(self, engine: Engine, *, offline: bool) -> None:
        self._engine = engine
        self._known: bool | None = False if offline else None

    def answers(self) -> bool:
        if self._known is None:
            self._known = self._engine.registry_answers()
            say("registry", "answers" if self._known else "does not answer: nothing is pulled")
        return self._known


def up(layout: Layout, settings: Settings, *, with_images: bool) -> None:
    """Climb all rungs; each one that is already there costs a question only."""
    layout.clear_scratch()
    state = State.read(layout.state_file)
    engine = _engine(
        layout, state, settings
    )  # before the programs: who has none waits for no build of theirs
    programs = client_programs(layout)
    offline = settings.offline or bool(state.engine and state.engine.offline)
    registry = Registry(engine, offline=offline)
    kubeconfig = layout.kubeconfig(settings.name)
    tools = Tools(programs, engine, kubeconfig)
    known = state.clusters.get(settings.name)
    image = known.image if known else node_image.ensure(layout, engine, registry=registry.answers)
    ours = images.ensure(layout, engine, registry=registry.answers) if with_images else {}
    running = cluster.ensure(layout, state, engine, tools, image, name=settings.name, nodes=settings.nodes)
    if ours:
        load.load(layout, state, engine, tools, running, ours)


def build_images(layout: Layout, settings: Settings) -> None:
    """Our images alone, in the engine's store."""
    state = State.read(layout.state_file)
    engine = _engine(layout, state, settings)
    offline = settings.offline or bool(state.engine and state.engine.offline)
    for name in images.ensure(layout, engine, registry=Registry(engine, offline=offline).answers).values():
        say("image", name)


def down(layout: Layout, *, only: str | None) -> None:
    """Undo what the state file names, whatever is left of it; with `only`, what no other cluster needs."""
    state = State.read(layout.state_file)
    if only is not None and state.clusters and only not in state.clusters:
        raise ClusterError(f"no cluster {only} here; there are: {', '.join(state.clusters)}")
    with rung("down") as this:
        steps = plan(state, only=only)
        Teardown(layout, state).carry_out(steps)
        this.note(f"{len(steps)} steps" if steps else "nothing was up")


def _engine(layout: Layout, state: State, settings: Settings) -> Engine:
    with rung("engine") as this:
        if state.engine is not None:
            if engine_process(state.engine) and (engine := Engine(state.host)).answers():
                this.note("our private engine runs")
                return engine
            say("engine", "our private engine is gone; clearing what it left")
            Teardown(layout, state).carry_out(plan(state))
            state = _forget(state)
        try:
            engine = ask()
        except NoEngine as absence:
            if os.geteuid() != 0 or not debian.is_debian():
                raise ClusterError(
                    f"{absence}. Install and start Docker, on Debian by\n"
                    "  sudo apt-get install -y docker.io && sudo adduser $USER docker\n"
                    "and log in anew; or run the same command by sudo: root on Debian gets a private engine"
                ) from absence
        else:
            state.host = engine.host
            this.note(f"the engine at {engine.host}")
            return engine
        private_engine.install()
        engine = private_engine.start(layout, state, offline=True)
        if not settings.offline and engine.registry_answers():
            _stop_engine(layout, state)
            engine = private_engine.start(layout, state, offline=False)
        reach = "cut off from outside" if state.engine and state.engine.offline else "a registry answers"
        this.note(f"private engine started, {reach}")
        return engine


def _stop_engine(layout: Layout, state: State) -> None:
    Teardown(layout, state).carry_out(plan(state))
    _forget(state)


def _forget(state: State) -> State:
    state.engine, state.host, state.modules_dir_made = None, "", False
    state.clusters.clear()
    return state


def exports(layout: Layout, settings: Settings) -> dict[str, str]:
    """The variables by which others use the cluster."""
    if settings.existing:
        prefix, tag = settings.image_prefix, settings.image_tag
        context = {
            "KUBECONFIG": os.environ.get("KUBECONFIG") or str(Path.home() / ".kube/config"),
            "TREADLE_CLUSTER_NAME": settings.name,
        }
        return context | {_variable(key): f"{prefix}/treadle-{key}:{tag}" for key in images.KEYS}
    state = State.read(layout.state_file)
    running = state.clusters.get(settings.name)
    if running is None:
        raise ClusterError(f"cluster {settings.name} is not up: run `up` first")
    values = {
        "KUBECONFIG": running.kubeconfig,
        "DOCKER_HOST": state.host,
        "TREADLE_CLUSTER_NAME": running.name,
    }
    values |= {f"TREADLE_{purpose.upper()}_PORT": str(port) for purpose, port in running.ports.items()}
    return values | {_variable(key): name for key, name in running.images.items()}


def program_folders(layout: Layout) -> list[str]:
    """What belongs in front of PATH: the folders of those programs that we built."""
    return [str(path.parent) for path in clients(layout).values() if layout.cache in path.parents]


def _variable(key: str) -> str:
    return f"TREADLE_{key.upper()}_IMAGE"


def healthy(layout: Layout, settings: Settings) -> bool:
    """Whether the cluster is up and whole; says nothing."""
    state = State.read(layout.state_file)
    one = state.clusters.get(settings.name)
    engine = Engine(state.host) if state.host else None
    return one is not None and _condition(layout, engine, one) == "healthy"


def status(layout: Layout) -> list[str]:
    """One line per thing that runs."""
    state = State.read(layout.state_file)
    engine = Engine(state.host) if state.host else None
    lines = []
    if state.engine:
        process = engine_process(state.engine)
        lines.append(f"private engine   {f'pid {process.pid}' if process else 'not running'}, {state.host}")
    elif engine:
        lines.append(f"engine           {state.host}")
    for one in state.clusters.values():
        condition = _condition(layout, engine, one)
        lines.append(f"cluster          {one.name}: {condition}, {one.nodes} node(s), {one.kubeconfig}")
        lines += [f"  port           127.0.0.1:{port} {purpose}" for purpose, port in one.ports.items()]
        lines += [f"  image          {image}" for image in one.loaded]
    return lines or ["nothing is up"]


def _condition(layout: Layout, engine: Engine | None, one: Cluster) -> str:
    if engine is None or not engine.answers():
        return "engine does not answer"
    with contextlib.suppress(CommandFailed):
        if Tools(clients(layout), engine, one.kubeconfig).healthy(one.nodes):
            return "healthy"
    return "not healthy"
