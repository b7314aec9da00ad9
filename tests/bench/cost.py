"""What a Run costs: status writes, CPU of the operator, CPU of the API server; the peer is a Kubernetes Job.

    python -m bench cost [--burst 100] [--rounds 3]

A burst of Runs, each on a thread of its own, then a burst of as many Jobs, on the same Node without a
kubelet, then statuses of a plain object (`yardstick.py`), because the goals are CPU times that were set on
another machine; in turns, some rounds. A played agent settles once its Run shows Running, as in an
undisturbed run.
"""

import argparse
import re
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench import yardstick
from bench.cpu import Spent, spent
from bench.kubelet import Kubelet
from bench.report import heading, note, ratio, table
from bench.watching import Object, Watch, condition, watching
from bench.world import World
from treadle_api.names import FINALIZER

APISERVER_GOAL = 45.0 / yardstick.STUDY_APISERVER
OPERATOR_GOAL = 15.0 / yardstick.STUDY_CLIENT
"""CPU of a Run in plain status writes: milliseconds on the machine of the study that set the goals, over what
such a write costs there."""
BURST_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of CPU for each object; objects a second."""

    apiserver: float
    process: float
    rate: float

    @staticmethod
    def of(rounds: list[Spent], each_round: int) -> "Cost":
        count = len(rounds) * each_round
        return Cost(
            sum(r.apiserver for r in rounds) * 1000 / count,
            sum(r.process for r in rounds) * 1000 / count,
            count / sum(r.took for r in rounds),
        )


async def measure(options: argparse.Namespace, world: World) -> None:
    base, count = world.base, options.burst
    await base.operator.start()
    names = [f"run{n}" for n in range(options.rounds * count)]
    ours, peer, plain = [], [], []
    async with (
        yardstick.standing(base.cluster, world.api, base.namespace) as stick,
        watching(world.api, world.path("jobs")) as jobs,
    ):
        for some in (names[n : n + count] for n in range(0, len(names), count)):
            ours.append(await _runs(world, some))
            peer.append(await _jobs(world, jobs, [f"job-{name}" for name in some]))
            plain.append(await stick.write())
    metrics = await base.operator.metrics()
    await base.operator.stop()

    heading(
        "cost of an undisturbed Run, against a Kubernetes Job and a plain status write",
        f"{options.rounds} times {count} at once on a Node without a kubelet, in turns;"
        " operator outside the cluster, played agents",
    )
    run, job, write = Cost.of(ours, count), Cost.of(peer, count), Cost.of(plain, yardstick.WRITES)
    rows: list[list[str | float | None]] = [
        [
            "CPU of the API server, ms each",
            run.apiserver,
            job.apiserver,
            ratio(run.apiserver, job.apiserver),
            write.apiserver,
            ratio(run.apiserver, write.apiserver),
            f"goal: {APISERVER_GOAL:.1f}x",
        ],
        [
            "CPU of the operator (client), ms each",
            run.process,
            None,
            None,
            write.process,
            ratio(run.process, write.process),
            f"goal: {OPERATOR_GOAL:.1f}x",
        ],
        ["finished a second", run.rate, job.rate, ratio(run.rate, job.rate), None, None, ""],
    ]
    table(["", "Run", "Job", "ratio", "write", "ratio", ""], rows)
    _tell_requests(world, names, metrics)


def _tell_requests(world: World, names: list[str], metrics: dict[str, float]) -> None:
    writes = [world.runs.status_changes(name) for name in names]
    sent = metrics['treadle_status_writes_total{kind="runs"}'] / len(names)
    note(
        f"status writes a Run: {statistics.mean(writes):.2f} seen by a watch (most: {max(writes)}),"
        f" {sent:.2f} sent   goal: 3"
    )
    events = [len(world.runs.history[name]) for name in names]
    note("in a burst the operator is late, and a Run that claimed meanwhile skips Starting: see latency")
    note(f"watch events a Run: {statistics.mean(events):.2f} (create, finalizer on and off, statuses)")
    threads = metrics.get('treadle_status_writes_total{kind="threads"}', 0.0) / len(names)
    note(f"status writes of a Run's Thread: {threads:.2f}")
    passes = sum(value for name, value in metrics.items() if name.startswith("treadle_reconciles_total"))
    note(f"passes of the operator a Run, its Thread included: {passes / len(names):.1f}")
    note("requests of the operator a Run (its Leader Lease and its lists included):")
    for request, count in _requests(metrics, len(names)):
        note(f"  {count:5.2f}  {request}")


def _requests(metrics: dict[str, float], runs: int) -> list[tuple[str, float]]:
    """Method and resource with their number for each Run, most first; what is asked rarely is left out."""
    found = [
        (f"{asked[1]} {asked[2]}", total / runs)
        for name, total in metrics.items()
        if (asked := re.fullmatch(r'treadle_requests_total{method="(\w+)",resource="([\w/]+)"}', name))
    ]
    return sorted((item for item in found if item[1] >= 0.05), key=lambda item: -item[1])


async def _runs(world: World, names: list[str]) -> Spent:
    runs = [world.base.run_object(name, name) for name in names]
    return await _spent(world, "runs", runs, lambda: _runs_end(world, names))


async def _jobs(world: World, jobs: Watch, names: list[str]) -> Spent:
    objects = [world.job(name) for name in names]
    return await _spent(world, "jobs", objects, lambda: _jobs_end(jobs, names))


async def _spent(
    world: World, plural: str, objects: list[Object], ended: Callable[[], Awaitable[None]]
) -> Spent:
    """What API server and operator spend on objects that all arrive at once."""
    kubelet = Kubelet(world.api, world.base.namespace, world.pods, lambda pod: _play(world, kubelet, pod))

    async def all_end() -> None:
        await world.post(plural, *objects)
        await ended()
        kubelet.check()

    try:
        return await spent(world.base.cluster, world.base.operator.pid, all_end)
    finally:
        await kubelet.close()


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


async def _jobs_end(jobs: Watch, names: list[str]) -> None:
    for name in names:
        await jobs.until(
            name,
            lambda seen: condition(seen.object, "Complete"),
            f"{name} is complete",
            within=BURST_SECONDS,
        )
