"""Pods as processes: keeper and agent in one, the kubelet that reports them, and what can befall them."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from support.simulator.apiserver import ApiServer
from support.simulator.loop import Loop, Process, Refused, Unavailable
from support.simulator.store import Store
from treadle_api.contract import ExitCode
from treadle_api.records import RunStatus
from treadle_operator.lifecycle.world import PodView, Terminated, Waiting

_T = TypeVar("_T")
RENEW = 2.5
GRACE = 5.0
PATIENCE = 6
KILLED = 137


class Exit(Exception):
    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.reason = reason


@dataclass(slots=True)
class Pod:
    """One pod. The object may go while the process lives on, and the other way round."""

    loop: Loop
    api: ApiServer
    store: Store
    run: str
    view: PodView
    key: str
    steps: int
    outcome: RunStatus
    fault: Exit | None = None
    """How the process ends at its next breath."""
    frozen_until: float = 0.0
    api_cut_until: float = 0.0
    store_cut_until: float = 0.0
    node_gone: bool = False
    """The kubelet reports nothing and hears of no deletion."""
    ended: bool = False
    _told: float | None = field(default=None)
    _renewed: float = field(default=0.0)
    _holder: str = field(default="")

    def life(self) -> Process:
        """From the scheduler to the kubelet's last report."""
        name, uid = self.view.name, self.view.uid
        yield from self._start()
        end = Exit(0)
        if self._wanted():
            try:
                yield from self._main()
            except Exit as exit_:
                end = exit_
        self.ended = True
        self.loop.say(name, f"ends with {end.code}")
        yield self.loop.random.uniform(0.05, 1.0)
        while self.node_gone and self.loop.faults:
            yield 5.0
        if self.node_gone:
            return
        body = self.api.pods.get(name)
        deleting = body is not None and body.view.deleting
        said = Terminated(end.code, end.reason, oom=end.reason == "OutOfMemory")
        self.api.edit_pod(name, uid, alive=False, phase="Failed", terminated=said)
        if deleting:
            self.api.remove_pod(name, uid)

    def _start(self) -> Process:
        yield self.loop.random.uniform(0.3, 3.0)
        if self.loop.chance(0.06):
            reason = self.loop.random.choice(("ErrImagePull", "Unschedulable", "CreateContainerConfigError"))
            self.api.edit_pod(self.view.name, self.view.uid, waiting=Waiting(reason, "not now"))
            for _ in range(self.loop.random.randrange(1, 25)):
                yield 4.0
                if not self._wanted():
                    return
            self.api.edit_pod(self.view.name, self.view.uid, waiting=None)

    def _wanted(self) -> bool:
        body = self.api.pods.get(self.view.name)
        return body is not None and body.view.uid == self.view.uid and not body.view.deleting

    def _main(self) -> Process:
        pod, uid = self.view.name, self.view.uid
        cap = yield from self._ask(lambda: self.store.take_assignment(pod, self.key, uid))
        if cap is None:
            raise Exit(ExitCode.FENCED)
        self._holder = f"{uid}/nonce"
        yield from self._acquire()
        done = yield from self._ask(lambda: self.store.claim(cap, self._holder))
        self.api.changed(self.run)
        while done < self.steps:
            yield from self._breathe(self.loop.random.uniform(0.3, 3.0))
            if self._told is not None:
                self._let_go()
                raise Exit(ExitCode.TRY_AGAIN, "Drained")
            done += 1
            yield from self._ask(partial(self.store.commit_step, cap, done))
        if self.outcome is RunStatus.SUCCESS:
            yield from self._ask(lambda: self.store.begin_finalizing(cap))
            yield from self._breathe(self.loop.random.uniform(0.05, 2.0))
        yield from self._ask(lambda: self.store.settle(cap, self.outcome))
        if not self.loop.chance(0.3):
            self.api.changed(self.run)
        yield from self._breathe(0.1)
        self._let_go()

    def _breathe(self, seconds: float) -> Process:
        """Work for a while; freezes, faults, SIGTERM and the keeper's renewal happen at its end."""
        yield seconds
        while self.loop.now < self.frozen_until:
            yield self.frozen_until - self.loop.now
        if self.fault is not None:
            raise self.fault
        if not self.node_gone and not self._wanted():
            self._told = self._told if self._told is not None else self.loop.now
            if self.loop.now - self._told > GRACE:
                raise Exit(KILLED)
        if self._holder and self.loop.now - self._renewed >= RENEW:
            self._renew()

    def _renew(self) -> None:
        """An unreachable API server is no reason to stop (Continue, the default); a foreign holder is."""
        if self.loop.now < self.api_cut_until:
            return
        try:
            self.api.call(lambda: self.api.renew(self.run, self.view.name, self._holder))
        except Unavailable:
            return
        except Refused:
            raise Exit(ExitCode.FENCED) from None
        self._renewed = self.loop.now

    def _acquire(self) -> Process:
        for _ in range(PATIENCE):
            yield from self._breathe(0.5)
            if self.loop.now < self.api_cut_until:
                continue
            try:
                self.api.call(lambda: self.api.renew(self.run, self.view.name, self._holder))
            except (Unavailable, Refused):
                continue
            self._renewed = self.loop.now
            return
        raise Exit(ExitCode.TRY_AGAIN)

    def _let_go(self) -> None:
        if self.loop.now < self.api_cut_until:
            return
        try:
            self.api.call(lambda: self.api.release(self.run, self.view.name, self._holder))
        except Unavailable:
            return

    def _ask(self, statement: Callable[[], _T]) -> Generator[float, None, _T]:
        """A fenced call, repeated while the store does not answer; refused means that we own nothing."""
        for _ in range(PATIENCE):
            yield from self._breathe(0.02)
            try:
                if self.loop.now < self.store_cut_until:
                    raise Unavailable
                return self.store.call(statement)
            except Refused:
                raise Exit(ExitCode.FENCED) from None
            except Unavailable:
                yield from self._breathe(1.0)
        raise Exit(ExitCode.TRY_AGAIN)
