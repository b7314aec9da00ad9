"""What a Run costs: status writes, CPU of the operator, CPU of the API server; the peer is a Kubernetes Job.

    python -m bench cost [--burst 100]

A burst of Runs, each on a thread of its own, then a burst of as many Jobs, on the same Node without a
kubelet. A played agent settles once its Run shows Running, as in an undisturbed run. CPU is what the
processes say of themselves (/proc, and `process_cpu_seconds_total` of the API server), less what they used
in the seconds before the burst, when nothing of ours happened.
"""

import argparse
import asyncio
import os
import re
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from bench.kubelet import Kubelet
from bench.report import heading, note, ratio, table
from bench.watching import Object, Watch, condition, watching
from bench.world import World
from treadle_api.names import FINALIZER

IDLE_SECONDS = 10.0
BURST_SECONDS = 600.0
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of CPU since their start, and when that was asked."""

    operator: float
    apiserver: float
    at: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of CPU for each object; objects per second."""

    operator: float
    apiserver: float
    rate: float


async def measure(options: argparse.Namespace, world: World) -> None:
    operator = world.base.operator
    await operator.start()
    names = [f"run{n}" for n in range(options.burst)]
    runs = [world.base.run_object(name, name) for name in names]
    ours = await _burst(world, "runs", runs, lambda: _runs_end(world, names))
    metrics = await operator.metrics()
    async with watching(world.api, world.path("jobs")) as jobs:
        posted = [world.job(f"job{n}") for n in range(options.burst)]
        peer = await _burst(world, "jobs", posted, lambda: _jobs_end(world, jobs, options.burst))
    await operator.stop()

    heading(
        "cost of an undisturbed Run, against a Kubernetes Job",
        f"{options.burst} at once on a Node without a kubelet; operator outside the cluster, played agents",
    )
    rows: list[list[str | float | None]] = [
        [
            "CPU of the API server, ms each",
            ours.apiserver,
            peer.apiserver,
            ratio(ours.apiserver, peer.apiserver),
            "goal: 45 ms",
        ],
        ["CPU of the operator, ms each", ours.operator, None, None, "goal: 15 ms"],
        ["finished a second", ours.rate, peer.rate, ratio(ours.rate, peer.rate), ""],
    ]
    table(["", "Run", "Job", "ratio", ""], rows)
    writes = [world.runs.status_changes(name) for name in names]
    sent = metrics['treadle_status_writes_total{kind="runs"}'] / options.burst
    note(
        f"status writes a Run: {statistics.mean(writes):.2f} seen by a watch (most: {max(writes)}),"
        f" {sent:.2f} sent   goal: 3"
    )
    note("in a burst the operator is late, and a Run that claimed meanwhile skips Starting: see latency")
    events = [len(world.runs.history[name]) for name in names]
    note(f"watch events a Run: {statistics.mean(events):.2f} (create, finalizer on and off, statuses)")
    threads = metrics.get('treadle_status_writes_total{kind="threads"}', 0.0) / options.burst
    note(f"status writes of a Run's Thread: {threads:.2f}")
    passes = sum(value for name, value in metrics.items() if name.startswith("treadle_reconciles_total"))
    note(f"passes of the operator a Run, its Thread included: {passes / options.burst:.1f}")
    note("requests of the operator a Run (its Leader Lease and its lists included):")
    for request, count in _requests(metrics, options.burst):
        note(f"  {count:5.2f}  {request}")


def _requests(metrics: dict[str, float], runs: int) -> list[tuple[str, float]]:
    """Method and resource with their number for each Run, most first; what is asked rarely is left out."""
    found = [
        (f"{asked[1]} {asked[2]}", total / runs)
        for name, total in metrics.items()
        if (asked := re.fullmatch(r'treadle_requests_total{method="(\w+)",resource="([\w/]+)"}', name))
    ]
    return sorted((item for item in found if item[1] >= 0.05), key=lambda item: -item[1])


async def _burst(
    world: World, plural: str, objects: list[Object], ended: Callable[[], Awaitable[None]]
) -> Cost:
    idle_from = await _cpu(world)
    await asyncio.sleep(IDLE_SECONDS)
    before = await _cpu(world)
    began = time.monotonic()
    kubelet = Kubelet(world.api, world.base.namespace, world.pods, lambda pod: _play(world, kubelet, pod))
    try:
        await world.post(plural, *objects)
        await ended()
        kubelet.check()
    finally:
        await kubelet.close()
    took = time.monotonic() - began
    after = await _cpu(world)
    idle = before.at - idle_from.at
    busy = after.at - before.at

    def each(start: float, middle: float, end: float) -> float:
        return (end - middle - (middle - start) * busy / idle) * 1000 / len(objects)

    return Cost(
        each(idle_from.operator, before.operator, after.operator),
        each(idle_from.apiserver, before.apiserver, after.apiserver),
        len(objects) / took,
    )


async def _play(world: World, kubelet: Kubelet, pod: Object) -> None:
    name = pod["metadata"]["name"]
    await kubelet.starts(name)
    if pod["metadata"]["ownerReferences"][0]["kind"] == "Run":
        agent = world.agent(pod)
        await agent.begin()
        await world.runs.until(
            agent.run,
            lambda seen: seen.object.get("status", {}).get("phase") == "Running",
            f"{agent.run} is Running",
            within=BURST_SECONDS,
        )
        await agent.finish()
    await kubelet.ends(name, 0)


async def _runs_end(world: World, names: list[str]) -> None:
    """Until nothing is left to do for them."""
    for name in names:
        await world.runs.until(
            name,
            lambda seen: (
                condition(seen.object, "Finished")
                and FINALIZER not in seen.object["metadata"].get("finalizers", [])
            ),
            f"{name} is finished and free",
            within=BURST_SECONDS,
        )


async def _jobs_end(world: World, jobs: Watch, count: int) -> None:
    for n in range(count):
        await jobs.until(
            f"job{n}",
            lambda seen: condition(seen.object, "Complete"),
            f"job{n} is complete",
            within=BURST_SECONDS,
        )


async def _cpu(world: World) -> Cpu:
    text = await world.base.cluster.kubectl("get", "--raw", "/metrics")
    found = re.search(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)
    assert found is not None, "the API server does not tell its CPU time"
    return Cpu(_cpu_of(world.base.operator.pid), float(found[1]), time.monotonic())


def _cpu_of(pid: int) -> float:
    """User and system time of a process, proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
