"""The API server's side: Runs, Pods and one Lease per Run, with resourceVersions, finalizers and watches.

Objects are immutable values that are replaced, so a stale cache is simply an older value.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from support.simulator.loop import Broken, Loop, Refused, Unavailable
from treadle_operator.lifecycle.world import LeaseView, PodView

_T = TypeVar("_T")
Watcher = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunBody:
    name: str
    uid: str
    created: float
    version: int
    finalizer: bool = False
    deleting: bool = False
    status: dict[str, Any] = field(default_factory=dict)

    def true(self, kind: str) -> bool:
        return any(c["type"] == kind and c["status"] == "True" for c in self.status.get("conditions", ()))


@dataclass(frozen=True, slots=True)
class PodBody:
    run: str
    view: PodView


@dataclass(frozen=True, slots=True)
class LeaseBody:
    version: int
    view: LeaseView


@dataclass(slots=True)
class ApiServer:
    loop: Loop
    runs: dict[str, RunBody] = field(default_factory=dict)
    """By uid; names are unique among those that exist."""
    pods: dict[str, PodBody] = field(default_factory=dict)
    leases: dict[str, LeaseBody] = field(default_factory=dict)
    thread: bool = True
    watchers: list[Watcher] = field(default_factory=list)
    status_writes: int = 0
    down_until: float = 0.0
    _version: int = 0

    def call(self, request: Callable[[], _T]) -> _T:
        if self.loop.now < self.down_until or self.loop.chance(0.02):
            raise Unavailable
        answer = request()
        if self.loop.chance(0.02):
            raise Unavailable
        return answer

    def version(self) -> int:
        self._version += 1
        return self._version

    def changed(self, uid: str) -> None:
        for watcher in self.watchers:
            watcher(uid)

    def create_run(self, name: str, uid: str) -> None:
        self.runs[uid] = RunBody(name, uid, self.loop.now, self.version())
        self.changed(uid)

    def edit_run(self, uid: str, version: int | None = None, **changes: Any) -> RunBody:
        body = self.runs.get(uid)
        if body is None or (version is not None and version != body.version):
            raise Refused
        if "status" in changes:
            self._admit_status(body, changes["status"])
        body = replace(body, version=self.version(), **changes)
        self.runs[uid] = body
        if body.deleting and not body.finalizer:
            del self.runs[uid]
            self.leases.pop(uid, None)
            for pod in [p for p in self.pods.values() if p.run == uid]:
                self.delete_pod(pod.view.name, pod.view.uid)
        self.changed(uid)
        return body

    def _admit_status(self, body: RunBody, status: dict[str, Any]) -> None:
        """The CRD's rules for a status (`crds/treadle_api/run_status.py`)."""
        self.status_writes += 1
        after = replace(body, status=status)
        token = body.status.get("ownership", {}).get("fencingToken", 0)
        if status.get("ownership", {}).get("fencingToken", 0) < token:
            raise Broken(f"{body.name}: the token in the status falls")
        if body.true("Finished") and not after.true("Finished"):
            raise Broken(f"{body.name}: Finished is taken back")
        for once in ("outcome", "completionTime"):
            if once in body.status and body.status[once] != status.get(once):
                raise Broken(f"{body.name}: {once} changes after it was set")
        if ("completionTime" in status) != after.true("Finished"):
            raise Broken(f"{body.name}: Finished and completionTime come one without the other")
        if after.true("Succeeded") and not (
            after.true("Finished") and status.get("delivery", {}).get("receiptID")
        ):
            raise Broken(f"{body.name}: Succeeded without a receipt")
        if after.true("Stalled") and after.true("Reconciling"):
            raise Broken(f"{body.name}: Stalled and Reconciling")

    def create_pod(self, run: str, view: PodView) -> bool:
        """False: a pod of this Run has the name already."""
        if run not in self.runs:
            raise Refused
        standing = self.pods.get(view.name)
        if standing is not None:
            return False
        self.pods[view.name] = PodBody(run, view)
        self.changed(run)
        return True

    def edit_pod(self, name: str, uid: str, **changes: Any) -> None:
        """The kubelet's reports; one about a pod that is gone is lost."""
        body = self.pods.get(name)
        if body is not None and body.view.uid == uid:
            self.pods[name] = PodBody(body.run, replace(body.view, **changes))
            self.changed(body.run)

    def delete_pod(self, name: str, uid: str) -> None:
        body = self.pods.get(name)
        if body is None or body.view.uid != uid:
            return
        if body.view.alive:
            self.edit_pod(name, uid, deleting=True)
        else:
            self.remove_pod(name, uid)

    def remove_pod(self, name: str, uid: str) -> None:
        body = self.pods.get(name)
        if body is not None and body.view.uid == uid:
            del self.pods[name]
            self.changed(body.run)

    def ensure_lease(self, run: str, pod: str) -> None:
        if run not in self.runs:
            raise Refused
        body = self.leases.get(run)
        if body is None or body.view.pod != pod:
            self.leases[run] = LeaseBody(self.version(), LeaseView(True, "", pod))

    def renew(self, run: str, pod: str, holder: str) -> None:
        """The keeper's PUT: only the named pod, only over an empty holder or its own."""
        body = self.leases.get(run)
        uid = holder.partition("/")[0]
        if body is None or body.view.pod != pod or body.view.holder.partition("/")[0] not in ("", uid):
            raise Refused
        self.leases[run] = LeaseBody(self.version(), LeaseView(True, holder, pod))

    def release(self, run: str, pod: str, holder: str) -> None:
        body = self.leases.get(run)
        if body is not None and body.view.pod == pod and body.view.holder == holder:
            self.leases[run] = LeaseBody(self.version(), LeaseView(True, "", pod))
