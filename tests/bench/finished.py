"""What finished Runs that are kept cost the operator: its memory, and the time until it is ready again.

    python -m bench finished [--finished 10000]

One Run is executed; its copies get its spec and its status. The operator's process is started without any of
them, then with all. Ready: it leads, has listed everything and answers (`treadle_leader` 1), counted from the
start of the process, Python's own start included; memory is the resident set at that moment, and its peak
SETTLE_SECONDS later.
"""

import argparse
import asyncio
import re
import time
from dataclasses import dataclass
from pathlib import Path

from bench.kubelet import Kubelet
from bench.report import heading, note, ratio, table
from bench.watching import Object, condition
from bench.world import AT_ONCE, World
from treadle_api.names import API_VERSION, FINALIZER

SETTLE_SECONDS = 20.0
WAIT_SECONDS = 180.0
MODEL = "kept"
STARTS = 3


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds until ready, MiB when ready, MiB at most."""

    ready: float
    resident: float
    peak: float


async def measure(options: argparse.Namespace, world: World) -> None:
    model = await _executed(world)
    without = [await _start(world) for _ in range(STARTS)]
    began = time.monotonic()
    await _keep(world, model, options.finished)
    made = time.monotonic() - began
    with_all = [await _start(world) for _ in range(STARTS)]
    heading(
        f"{options.finished} finished Runs that are kept, against none",
        f"the operator's process outside the cluster, median of {STARTS} starts",
    )
    rows: list[list[str | float | None]] = []
    for what, goal in (("ready", "goal: 3 s"), ("resident", ""), ("peak", "goal: 150 MiB")):
        base, ours = (_median([getattr(start, what) for start in starts]) for starts in (without, with_all))
        name = "ready again after, s" if what == "ready" else f"memory, {what}, MiB"
        rows.append([name, base, ours, ratio(ours, base), goal])
    table(["", "none kept", f"{options.finished} kept", "ratio", ""], rows)
    note(f"made in {made:.0f} s ({options.finished / made:.0f} a second)")
    await world.delete_all("runs")


async def _executed(world: World) -> Object:
    """A finished Run as the operator leaves it; then nothing else is there."""
    await world.base.operator.start()

    async def play(pod: Object) -> None:
        await kubelet.starts(pod["metadata"]["name"])
        agent = world.agent(pod)
        await agent.begin()
        await agent.finish()
        await kubelet.ends(pod["metadata"]["name"], 0)

    kubelet = Kubelet(world.api, world.base.namespace, world.pods, play)
    try:
        await world.post("runs", world.base.run_object(MODEL, MODEL))
        seen = await world.runs.until(
            MODEL,
            lambda seen: (
                condition(seen.object, "Finished")
                and FINALIZER not in seen.object["metadata"].get("finalizers", [])
            ),
            "the model of all finished Runs is there",
            within=WAIT_SECONDS,
        )
        kubelet.check()
    finally:
        await kubelet.close()
    await world.base.operator.stop()
    return seen.object


async def _start(world: World) -> Start:
    operator = world.base.operator
    began = time.monotonic()
    await operator.start()
    ready = time.monotonic() - began
    resident = _mebibytes(operator.pid, "VmRSS")
    await asyncio.sleep(SETTLE_SECONDS)
    peak = _mebibytes(operator.pid, "VmHWM")
    await operator.stop()
    return Start(ready, resident, peak)


async def _keep(world: World, model: Object, count: int) -> None:
    """Makes the copies, each with the model's status."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def copy(name: str) -> None:
        async with gate:
            made = {
                "apiVersion": API_VERSION,
                "kind": "Run",
                "metadata": {"name": name},
                "spec": model["spec"],
            }
            (await world.api.request("POST", world.path("runs"), made)).agreed()
            answer = await world.api.request(
                "PATCH",
                f"{world.path('runs')}/{name}/status",
                {"status": model["status"]},
                content_type="application/merge-patch+json",
            )
            answer.agreed()

    async with asyncio.TaskGroup() as group:
        for n in range(count):
            group.create_task(copy(f"kept{n}"))


def _mebibytes(pid: int, what: str) -> float:
    found = re.search(rf"^{what}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None, f"the kernel does not tell {what}"
    return int(found[1]) / 1024


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
