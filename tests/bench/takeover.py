"""From the confirmed death of a pod to the next attempt at work; the peer is a Kubernetes Job.

    python -m bench takeover [--losses 10]

An attempt works in a pod on a Node without a kubelet; then its pod is reported terminated with
DisruptionTarget, as by a drained node. The clock starts when that report is sent and stops when this process
sees the next pod created, and the Run Running under the next attempt (a played agent claims at once: a real
one adds its start, see `latency`). The Job is lost in the same way,
under a podFailurePolicy that forgives it.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.kubelet import Kubelet
from bench.report import heading, percentile, ratio, table
from bench.watching import Object, Seen
from bench.world import PlayedAgent, World
from treadle_api.names import LABEL_RUN, pod_name

WAIT_SECONDS = 180.0
_KILLED = 137


@dataclass
class Losses:
    """The pods that work now, by name."""

    world: World
    kubelet: Kubelet
    agents: dict[str, PlayedAgent] = field(default_factory=dict)

    async def begin(self, pod: Object) -> None:
        """What a pod does once it has a node: its container starts, an agent claims."""
        name = pod["metadata"]["name"]
        await self.kubelet.starts(name)
        if LABEL_RUN in pod["metadata"]["labels"]:
            self.agents[name] = self.world.agent(pod)
            await self.agents[name].begin()

    async def of_run(self, name: str) -> tuple[float, float]:
        """Seconds until the next pod was created, and until the Run was Running again."""
        world, successor = self.world, pod_name(name, 2)
        await world.post("runs", world.base.run_object(name, name))
        await world.runs.until(name, _running(1), f"{name} is Running", within=WAIT_SECONDS)
        lost = time.time()
        await self.kubelet.ends(pod_name(name, 1), _KILLED, disrupted=True)
        pod = await world.pods.until(successor, _added, f"pod {successor} is created", within=WAIT_SECONDS)
        back = await world.runs.until(name, _running(2), f"{name} is Running again", within=WAIT_SECONDS)
        await self.agents[successor].finish()
        await self.kubelet.ends(successor, 0)
        return pod.at - lost, back.at - lost

    async def of_job(self, name: str) -> float:
        """Seconds until the next pod was created."""
        world = self.world
        await world.post("jobs", world.job(name))
        first = await world.pods.until(None, _works_for(name), f"the pod of {name} runs", within=WAIT_SECONDS)
        pod = first.object["metadata"]["name"]
        lost = time.time()
        await self.kubelet.ends(pod, _KILLED, disrupted=True)
        successor = await world.pods.until(
            None,
            lambda seen: _job(seen) == name and _added(seen) and seen.object["metadata"]["name"] != pod,
            f"the next pod of {name}",
            within=WAIT_SECONDS,
        )
        await world.pods.until(
            None,
            lambda seen: _works_for(name)(seen) and seen.object["metadata"]["name"] != pod,
            f"the next pod of {name} runs",
            within=WAIT_SECONDS,
        )
        await self.kubelet.ends(successor.object["metadata"]["name"], 0)
        return successor.at - lost


async def measure(options: argparse.Namespace, world: World) -> None:
    await world.base.operator.start()
    kubelet = Kubelet(world.api, world.base.namespace, world.pods, lambda pod: losses.begin(pod))
    losses = Losses(world, kubelet)
    created: list[float] = []
    running: list[float] = []
    replaced: list[float] = []
    try:
        for n in range(options.losses):
            until_created, until_running = await losses.of_run(f"lost{n}")
            created.append(until_created * 1000)
            running.append(until_running * 1000)
            replaced.append(await losses.of_job(f"lost-job{n}") * 1000)
            kubelet.check()
    finally:
        await kubelet.close()
    await world.base.operator.stop()
    heading(
        "takeover after a confirmed death, against the pod replacement of a Kubernetes Job",
        f"milliseconds since the pod was reported terminated, {options.losses} losses each, in turns",
    )
    base = percentile(replaced, 0.5)
    rows: list[list[str | float | None]] = []
    for what, values in (("Run: next pod created", created), ("Run: next attempt Running", running)):
        middle = percentile(values, 0.5)
        rows.append([what, middle, percentile(values, 0.9), ratio(middle, base)])
    rows.append(["Job: next pod created", base, percentile(replaced, 0.9), None])
    table(["", "p50", "p90", "ratio"], rows)


def _added(seen: Seen) -> bool:
    return seen.kind == "ADDED"


def _running(attempt: int) -> Callable[[Seen], bool]:
    def right(seen: Seen) -> bool:
        status = seen.object.get("status", {})
        return bool(status.get("phase") == "Running" and status.get("attempt") == attempt)

    return right


def _job(seen: Seen) -> str | None:
    """Of which Job that pod is."""
    name: str | None = seen.object["metadata"].get("labels", {}).get("job-name")
    return name


def _works_for(job: str) -> Callable[[Seen], bool]:
    return lambda seen: _job(seen) == job and seen.object["status"].get("phase") == "Running"
