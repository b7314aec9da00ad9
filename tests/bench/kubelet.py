"""Plays the kubelet on a Node that has none: two pod statuses for each pod, and no container."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bench.watching import Object, Seen, Watch
from support.apiserver import ApiServer

Work = Callable[[Object], Coroutine[Any, Any, None]]


class Kubelet:
    """Does `work` once with every pod of the watch that has a node."""

    def __init__(self, api: ApiServer, namespace: str, pods: Watch, work: Work) -> None:
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._api = api
        self._work = work
        self._taken: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None
        self._pods = pods
        pods.listen(self._seen)

    def check(self) -> None:
        """Raises what a pod's work has raised."""
        if self._failed is not None:
            raise self._failed

    async def starts(self, pod: str) -> None:
        """The container runs."""
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        ready = {"type": "Ready", "status": "True"}
        await self._status(pod, {"phase": "Running", "conditions": [ready]}, state)

    async def ends(self, pod: str, exit_code: int, *, disrupted: bool = False) -> None:
        """The container has terminated; `disrupted`: because the pod had to leave its node."""
        state = {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}}
        status: Object = {"phase": "Failed" if exit_code else "Succeeded", "conditions": []}
        if disrupted:
            reason = {"reason": "EvictionByEvictionAPI", "message": "drained"}
            status["conditions"] = [{"type": "DisruptionTarget", "status": "True", **reason}]
        await self._status(pod, status, state)

    async def close(self) -> None:
        self._pods.ignore(self._seen)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _seen(self, seen: Seen) -> None:
        pod = seen.object
        uid = pod["metadata"]["uid"]
        if seen.kind == "DELETED" or uid in self._taken or not pod["spec"].get("nodeName"):
            return
        self._taken.add(uid)
        task = asyncio.create_task(self._work(pod))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()

    async def _status(self, pod: str, status: Object, state: Object) -> None:
        container = {"name": "agent", "image": "none", "imageID": "none@sha256:0", "restartCount": 0}
        status["containerStatuses"] = [{**container, "ready": "running" in state, "state": state}]
        answer = await self._api.request(
            "PATCH",
            f"{self._path}/{pod}/status",
            {"status": status},
            content_type="application/merge-patch+json",
        )
        answer.agreed()
