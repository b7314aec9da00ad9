"""From `POST run` to Finished on a real kubelet, against a bare pod of the same image on the same node.

    python -m bench latency [--runs 20]

Runs come one after the other, each on a thread of its own, with the scripted model; after each Run (or
before it, in turns) a bare pod is created whose Python prints the time and ends. Every moment is read from
a clock of the one kernel on which all of this runs:

    created         the pod's ADDED event reaches this process
    started         the container runtime has started the process (`crictl inspect`, to the nanosecond)
    first line      what the bare pod's Python printed
    agent reads, LangGraph imported
                    the agent's log: interpreter, event loop and Postgres client are there; so is LangGraph,
                    which a thread imports while the Lease is taken and the run is claimed
    admitted, assigned, claimed, graph starts, first model call, receipt
                    when Postgres began the statement that wrote the row; the events behind "graph starts" and
                    "first model call" wait up to 50 ms for company before that
    Finished        the Run's event with Finished=True reaches this process

Receipt -> Finished counts from before the commit, so it is an upper bound.
"""

import argparse
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bench.report import heading, note, percentile, ratio, table
from bench.watching import Seen, Watch, condition, watching
from support.apiserver import ApiServer, open_apiserver
from support.cluster import Cluster
from support.eventually import eventually
from support.release import Release, free_namespace
from treadle_api.names import API_VERSION, pod_name
from treadle_api.records import RunRecord, RunUID
from treadle_store.events import list_events
from treadle_store.pool import Pool, open_pool
from treadle_store.run_records import read_runs

RUN_SECONDS = 180.0
_SCRIPT = {"count": "turn", "replies": [{"text": "Good morning to you, too."}]}
_BARE = "import time; print(time.time())"
_CPU = "CPU: "
_LOGGED = ("agent starts", "langgraph imported", "graph runs")
"""Lines of the agent's log that tell the CPU time which its process has used by then."""
_GOALS = {
    "agent started": "goal: within 1.2x of the bare pod",
    "first model call": "goal: p50 under 1600 ms",
    "receipt -> Finished": "goal: p50 under 300 ms",
}


@dataclass
class Moments:
    """Milliseconds by the name of what passed; a list has one entry per round."""

    run: dict[str, list[float]] = field(default_factory=dict)
    bare: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Line:
    """A line of the agent's log: when it was written, in seconds of the wall clock, and what it tells."""

    at: float
    cpu_seconds: float


@dataclass(frozen=True)
class Bench:
    cluster: Cluster
    api: ApiServer
    namespace: str
    store: Pool
    runs: Watch
    pods: Watch

    async def run(self, name: str) -> dict[str, float]:
        """One Run to its end; milliseconds since it was applied."""
        applied = time.time()
        made = await self.api.request("POST", self._path("runs"), _run(name))
        uid = RunUID(made.agreed()["metadata"]["uid"])
        pod = await self.pods.until(pod_name(name, 1), _anything, f"the pod of {name}", within=RUN_SECONDS)
        done = await self.runs.until(
            name, lambda seen: condition(seen.object, "Finished"), f"{name} is Finished", within=RUN_SECONDS
        )
        record = (await read_runs(self.store, [uid]))[uid]
        assert condition(done.object, "Succeeded"), done.object["status"]
        told = self._told(record, await self._events(record))
        # A Run can be Finished before the kubelet has told that its container runs, and has logs.
        started = await self._started(pod_name(name, 1))
        logged = await self._logged(pod_name(name, 1))
        moments = {
            "admitted": record.created_at.timestamp(),
            "assigned": record.attempts[0].started.timestamp(),
            "pod created": pod.at,
            "agent started": started,
            "agent reads": logged["agent starts"].at,
            "claimed": told.pop("claimed"),
            "LangGraph imported": logged["langgraph imported"].at,
            **told,
            "Finished": done.at,
        }
        passed = {what: (at - applied) * 1000 for what, at in moments.items()}
        passed |= {_CPU + message: line.cpu_seconds * 1000 for message, line in logged.items()}
        passed["receipt -> Finished"] = passed["Finished"] - passed["receipt"]
        return passed

    async def bare(self, name: str, image: str) -> dict[str, float]:
        """One pod that does nothing; milliseconds since it was applied."""
        applied = time.time()
        (await self.api.request("POST", self._path("pods"), _pod(name, image))).agreed()
        pod = await self.pods.until(name, _anything, f"pod {name}", within=RUN_SECONDS)
        await self.pods.until(
            name,
            lambda seen: seen.object["status"].get("phase") == "Succeeded",
            f"pod {name} has ended",
            within=RUN_SECONDS,
        )
        first = float(await self.cluster.kubectl("logs", name, namespace=self.namespace))
        moments = {"pod created": pod.at, "agent started": await self._started(name), "first line": first}
        await self.api.request("DELETE", f"{self._path('pods')}/{name}")
        return {what: (at - applied) * 1000 for what, at in moments.items()}

    async def _events(self, record: RunRecord) -> dict[str, float]:
        """When the first event of each type was written."""
        events = await list_events(self.store, record.thread_id, run_id=record.run_id)
        return {event.type: event.created_at.timestamp() for event in reversed(events)}

    def _told(self, record: RunRecord, first: dict[str, float]) -> dict[str, float]:
        assert record.receipt is not None
        assert record.started_at is not None
        return {
            "claimed": record.started_at.timestamp(),
            "graph starts": first["run.start"],
            "first model call": first["model.request"],
            "receipt": record.receipt.created_at.timestamp(),
        }

    async def _logged(self, pod: str) -> dict[str, _Line]:
        """The lines of `_LOGGED` in the agent's log, by message."""
        found: dict[str, _Line] = {}
        for text in (await self.cluster.kubectl("logs", pod, namespace=self.namespace)).splitlines():
            line = json.loads(text) if text.startswith("{") else {}
            if line.get("message") in _LOGGED:
                at = datetime.fromisoformat(line["time"]).timestamp()
                found.setdefault(line["message"], _Line(at, line["cpu_seconds"]))
        return found

    async def _started(self, pod: str) -> float:
        """When the runtime started the process of the pod's container, in seconds of the wall clock."""

        async def container() -> tuple[str, str] | None:
            found = await self.cluster.get("pod", pod, namespace=self.namespace)
            statuses = found["status"].get("containerStatuses") or [{}]
            identity = str(statuses[0].get("containerID", "")).removeprefix("containerd://")
            return (found["spec"]["nodeName"], identity) if identity else None

        told = await eventually(container, f"the kubelet tells the container of {pod}", within=30, every=0.2)
        assert told is not None
        node, identity = told
        answer = json.loads(await self.cluster.run("docker", "exec", node, "crictl", "inspect", identity))
        return datetime.fromisoformat(answer["status"]["startedAt"]).timestamp()

    def _path(self, plural: str) -> str:
        root = f"/apis/{API_VERSION}" if plural in ("runs", "threads", "agents") else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{plural}"


async def measure(options: argparse.Namespace, cluster: Cluster, release: Release) -> None:
    async with _bench(cluster, release) as bench:
        await bench.cluster.apply(*_given(), namespace=bench.namespace)
        image = bench.cluster.image("runtime")
        moments = Moments()
        for round_ in range(-1, options.runs):  # the first warms caches and is not counted
            turns: list[Any] = [
                (moments.run, lambda n=round_: bench.run(f"run{n}" if n >= 0 else "warm")),
                (moments.bare, lambda n=round_: bench.bare(f"bare{n}" if n >= 0 else "bare-warm", image)),
            ]
            for kept, work in turns if round_ % 2 else reversed(turns):
                passed = await work()
                if round_ >= 0:
                    for what, milliseconds in passed.items():
                        kept.setdefault(what, []).append(milliseconds)
        writes = [bench.runs.status_changes(f"run{n}") for n in range(options.runs)]
        _tell(moments, options.runs)
        note(f"status writes a Run: {sum(writes) / len(writes):.2f} (most: {max(writes)})   goal: 3")


def _tell(moments: Moments, runs: int) -> None:
    heading(
        "an undisturbed Run on a real kubelet, against a bare pod of the same image on the same node",
        f"milliseconds since the object was posted, {runs} sequential rounds, Run and pod in turns",
    )
    rows: list[list[str | float | None]] = []
    for what, ours in moments.run.items():
        if what.startswith(_CPU):
            continue
        peer = moments.bare.get(what)
        base = percentile(peer, 0.5) if peer else None
        rows.append(
            [
                what,
                percentile(ours, 0.5),
                percentile(ours, 0.9),
                base,
                percentile(peer, 0.9) if peer else None,
                ratio(percentile(ours, 0.5), base) if base else None,
                _GOALS.get(what, ""),
            ]
        )
    line = moments.bare["first line"]
    rows.insert(
        4, ["bare pod's first line", None, None, percentile(line, 0.5), percentile(line, 0.9), None, ""]
    )
    table(["", "Run p50", "p90", "bare pod p50", "p90", "ratio", ""], rows)
    started = [
        a - b for a, b in zip(moments.run["first model call"], moments.run["agent started"], strict=True)
    ]
    note(f"agent started -> first model call: p50 {percentile(started, 0.5):.0f} ms")
    used = [f"{percentile(moments.run[_CPU + message], 0.5):.0f} ms at {message!r}" for message in _LOGGED]
    note(f"CPU time of the agent's process: p50 {', '.join(used)}")


@asynccontextmanager
async def _bench(cluster: Cluster, release: Release) -> AsyncIterator[Bench]:
    dsn = urlsplit((await release.secret("store-access"))["operator-dsn"])
    port = cluster.exports["TREADLE_POSTGRES_PORT"]
    local = urlunsplit(dsn._replace(netloc=f"{dsn.netloc.rpartition('@')[0]}@127.0.0.1:{port}"))
    async with free_namespace(cluster) as namespace, open_apiserver(cluster.kubeconfig) as api:
        runs, pods = (
            f"/apis/{API_VERSION}/namespaces/{namespace}/runs",
            f"/api/v1/namespaces/{namespace}/pods",
        )
        async with watching(api, runs) as seen_runs, watching(api, pods) as seen_pods:
            store = await open_pool(local, application="bench", max_size=2)
            try:
                yield Bench(cluster, api, namespace, store, seen_runs, seen_pods)
            finally:
                await store.close()


def _anything(_: Seen) -> bool:
    return True


def _given() -> list[dict[str, Any]]:
    """The Agent of all Runs and what its model says."""
    script = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "script"}}
    model = {"provider": "scripted", "scriptConfigMapKeyRef": {"name": "script", "key": "script.json"}}
    return [
        {**script, "data": {"script.json": json.dumps(_SCRIPT)}},
        {
            "apiVersion": API_VERSION,
            "kind": "Agent",
            "metadata": {"name": "greeter"},
            "spec": {"model": model},
        },
    ]


def _run(name: str) -> dict[str, Any]:
    spec = {
        "threadRef": {"name": name},
        "threadTemplate": {"agentRef": {"name": "greeter"}},
        "input": {"text": "Good morning!"},
    }
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": {"name": name}, "spec": spec}


def _pod(name: str, image: str) -> dict[str, Any]:
    container = {
        "name": "bare",
        "image": image,
        "command": ["python", "-c", _BARE],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
