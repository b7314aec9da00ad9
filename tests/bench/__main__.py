"""`python -m bench [NAME ...]`: every benchmark, or those that are named. README.md explains the figures."""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import cost, events, finished, latency, takeover
from bench.world import standing
from support import cluster as clusters
from support.cluster import Cluster
from support.release import shared_release

PLAYED = {"cost": cost.measure, "takeover": takeover.measure, "finished": finished.measure}
"""Those whose pods are played, each in a namespace and with a store of its own."""
NAMES = ("checkpoint", "events", "latency", *PLAYED)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if "checkpoint" in options.names:
        _checkpoint(options)
    asyncio.run(_measure(options))
    return 0


async def _measure(options: argparse.Namespace) -> None:
    if "events" in options.names:
        await events.measure(options)
    if not {"latency", *PLAYED} & set(options.names):
        return
    cluster = _cluster()
    release = await shared_release(cluster)
    if "latency" in options.names:
        await latency.measure(options, cluster, release)
    for name, measure in PLAYED.items():
        if name in options.names:
            async with standing(cluster) as world:
                await measure(options, world)


def _cluster() -> Cluster:
    """The one whose environment we are in (`make bench`), else one that is started."""
    if "TREADLE_CLUSTER_NAME" in os.environ:
        return Cluster(dict(os.environ))
    return clusters.start()


def _checkpoint(options: argparse.Namespace) -> None:
    """In a process of its own: it sets LangGraph up for itself before that is imported."""
    budget = ["--seconds", str(options.seconds), "--rounds", str(options.rounds)]
    sys.stdout.flush()
    subprocess.run([sys.executable, str(Path(__file__).with_name("checkpoint.py")), *budget], check=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement of a rate")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement of a rate")
    parser.add_argument("--runs", type=int, default=20, help="Runs one after the other (latency)")
    parser.add_argument("--burst", type=int, default=100, help="Runs at once (cost)")
    parser.add_argument("--losses", type=int, default=10, help="attempts that are lost (takeover)")
    parser.add_argument("--finished", type=int, default=10_000, help="finished Runs that are kept (finished)")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"{', '.join(sorted(unknown))}: there is no such benchmark")
    return options


if __name__ == "__main__":
    sys.exit(main())
