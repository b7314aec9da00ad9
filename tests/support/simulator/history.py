"""One history: up to three Runs of one Thread, one or two operators, faults for a while, then peace.

What must hold after every step: the store's predicates let no stale writer in; a run has one end and one
receipt; terminal never changes; attempts stay within their budgets; at most one process can write; what a
status says is backed by the store. And once faults stop, every run ends.
"""

from dataclasses import dataclass
from typing import Any

from support.simulator.agents import Pod
from support.simulator.apiserver import ApiServer
from support.simulator.chaos import Chaos
from support.simulator.loop import Broken, Loop, Process
from support.simulator.operators import Operator
from support.simulator.store import Store
from treadle_api.records import RunStatus
from treadle_api.resolved import ResolvedRun

BACKOFF_LIMIT = 2
MAX_DISRUPTIONS = 4
PEACE = 4000.0
"""Virtual seconds within which every run must have ended after the faults."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a history was like, for the tests that look at many of them."""

    runs: int
    outcomes: tuple[str, ...]
    attempts: int
    status_writes: int
    steps: int


class History:
    def __init__(self, seed: int, *, quiet: bool = False) -> None:
        self.loop = Loop(seed)
        self.store = Store(self.loop)
        self.api = ApiServer(self.loop)
        self.pods: list[Pod] = []
        self._quiet = quiet
        self._ends: dict[str, tuple[Any, ...]] = {}
        self._token = 0
        self._applied = False
        self._checked: tuple[int, ...] = ()
        random = self.loop.random
        self._plans = {
            f"uid-{n}": (random.randrange(1, 6), random.choice((RunStatus.SUCCESS,) * 4 + (RunStatus.ERROR,)))
            for n in range(1 if quiet else random.choice((1, 2, 2, 3)))
        }
        self.api.thread = random.random() < 0.5
        live = random.random() < 0.5
        config = _settings(
            lease={"duration_seconds": 10, "renew_seconds": 3},
            retry={
                "backoff_limit": BACKOFF_LIMIT,
                "max_disruptions": MAX_DISRUPTIONS,
                "backoff_seconds": 1,
                "backoff_cap_seconds": 8,
            },
            timeouts={
                "start_seconds": 60,
                "active_seconds": random.choice((86_400, 86_400, 86_400, 60)) if not quiet else 86_400,
                "finalize_seconds": 20,
            },
        )
        count = 1 if quiet or random.random() < 0.6 else 2
        self.operators = [
            Operator(
                f"operator-{n}",
                self.loop,
                self.api,
                self.store,
                config,
                self._start,
                self._plans,
                live,
            )
            for n in range(count)
        ]

    def play(self) -> Summary:
        """Run it to its end; raises `Broken` with what went wrong."""
        loop = self.loop
        loop.faults = not self._quiet
        for operator in self.operators:
            self.api.watchers.append(operator.seen)
            operator.begin()
        loop.spawn(self._apply())
        peace = 0.0
        if not self._quiet:
            chaos = Chaos(loop, self.api, self.store, self.operators, self.pods)
            loop.spawn(chaos.strike())
            peace = loop.random.choice((15.0, 40.0, 90.0))
            loop.spawn(self._calm(chaos), after=peace)
        if not loop.run(until=self._over, check=self._check, limit=peace + PEACE):
            raise Broken(f"not ended {PEACE:.0f} s after the faults: {self._unfinished()}")
        rows = self.store.rows.values()
        return Summary(
            len(self._plans),
            tuple(row.status.value for row in rows),
            sum(row.attempt for row in rows),
            self.api.status_writes,
            loop.steps,
        )

    def _apply(self) -> Process:
        for uid in self._plans:
            self.api.create_run(f"run-{uid}", uid)
            yield self.loop.random.uniform(0.0, 5.0)
        self._applied = True

    def _calm(self, chaos: Chaos) -> Process:
        chaos.calm()
        return
        yield 0.0

    def _start(self, pod: Pod) -> None:
        self.pods.append(pod)
        self.loop.spawn(pod.life())

    def _over(self) -> bool:
        if self.loop.faults or not self._applied:
            return False
        if any(not row.status.terminal for row in self.store.rows.values()):
            return False
        return all(body.true("Finished") and not body.finalizer for body in self.api.runs.values())

    def _unfinished(self) -> str:
        rows = [f"{r.name} {r.status.value} attempt {r.attempt}" for r in self.store.rows.values()]
        objects = [f"{b.name} {b.status.get('phase')}" for b in self.api.runs.values()]
        return ", ".join(rows + objects)

    def _check(self) -> None:
        store = self.store
        moved = (store.changes, self.api.status_writes, len(self.api.runs))
        if moved == self._checked:
            return
        self._checked = moved
        if store.token < self._token:
            raise Broken("the token falls")
        self._token = store.token
        holding = 0
        for row in store.rows.values():
            holding += row.status.active
            if row.retries > BACKOFF_LIMIT or row.disruptions > MAX_DISRUPTIONS:
                raise Broken(
                    f"{row.name} is over its budget: {row.retries} retries, {row.disruptions} others"
                )
            if row.status.terminal:
                end = (row.status, row.receipt, row.attempt, row.token, row.steps)
                if self._ends.setdefault(row.uid, end) != end:
                    raise Broken(f"{row.name} changes after its end")
                if row.receipt is None:
                    raise Broken(f"{row.name} ended without a receipt")
        if holding > 1:
            raise Broken(f"{holding} runs hold the thread")
        for body in self.api.runs.values():
            self._check_status(body.uid, body.status)

    def _check_status(self, uid: str, status: dict[str, Any]) -> None:
        outcome = status.get("outcome")
        if outcome is None:
            return
        row = self.store.rows.get(uid)
        if row is not None and outcome.lower() != row.status.value:
            raise Broken(f"{row.name} shows {outcome}, the store says {row.status.value}")
        if row is None and outcome == "Success":
            raise Broken(f"{uid} shows a success that the store does not know")


def play(seed: int, *, quiet: bool = False) -> Summary:
    """One history; a failure names the command that plays it again."""
    history = History(seed, quiet=quiet)
    try:
        return history.play()
    except Exception as broken:
        broken.add_note(f"replay: PYTHONPATH=crds:operator:runtime:tests python -m support.simulator {seed}")
        raise


def _settings(**changes: Any) -> dict[str, Any]:
    return ResolvedRun.model_validate(changes).model_dump(mode="json")
