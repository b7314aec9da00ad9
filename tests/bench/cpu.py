"""CPU time that processes say they used, told apart from what they use when nothing of ours happens."""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from support.cluster import Cluster

IDLE_SECONDS = 10.0
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of CPU beyond those of an idle time of the same length, and the seconds that passed."""

    apiserver: float
    process: float
    took: float


@dataclass(frozen=True, slots=True)
class _Clocks:
    apiserver: float
    process: float
    at: float


async def spent(cluster: Cluster, pid: int, work: Callable[[], Awaitable[object]]) -> Spent:
    """What the API server and the process `pid` use for `work`."""
    idle_from = await _clocks(cluster, pid)
    await asyncio.sleep(IDLE_SECONDS)
    before = await _clocks(cluster, pid)
    await work()
    after = await _clocks(cluster, pid)
    share = (after.at - before.at) / (before.at - idle_from.at)

    def beyond(start: float, middle: float, end: float) -> float:
        return (end - middle) - (middle - start) * share

    return Spent(
        beyond(idle_from.apiserver, before.apiserver, after.apiserver),
        beyond(idle_from.process, before.process, after.process),
        after.at - before.at,
    )


async def _clocks(cluster: Cluster, pid: int) -> _Clocks:
    text = await cluster.kubectl("get", "--raw", "/metrics")
    found = re.search(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)
    assert found is not None, "the API server does not tell its CPU time"
    return _Clocks(float(found[1]), _process(pid), time.monotonic())


def _process(pid: int) -> float:
    """User and system time, proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
