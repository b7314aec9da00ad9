"""What befalls a history while faults are on: one blow after another, drawn from the seed."""

from collections.abc import Callable

from support.simulator.agents import Exit, Pod
from support.simulator.apiserver import ApiServer
from support.simulator.loop import Loop, Process
from support.simulator.operators import Operator
from support.simulator.store import Store
from treadle_api.contract import ExitCode


class Chaos:
    def __init__(
        self, loop: Loop, api: ApiServer, store: Store, operators: list[Operator], pods: list[Pod]
    ) -> None:
        self._loop, self._api, self._store = loop, api, store
        self._operators, self._pods = operators, pods
        self._blows: tuple[tuple[int, Callable[[], None]], ...] = (
            (6, self._end_process),
            (3, self._freeze_process),
            (3, self._lose_node),
            (2, self._cut_api),
            (2, self._cut_store),
            (3, self._delete_pod),
            (2, self._force_delete_pod),
            (2, self._delete_lease),
            (3, self._kill_operator),
            (2, self._freeze_operator),
            (2, self._store_away),
            (2, self._api_away),
            (1, self._delete_run),
            (1, self._step_clock),
        )

    def strike(self) -> Process:
        random = self._loop.random
        weights = [weight for weight, _ in self._blows]
        pause = random.choice((3.0, 8.0, 25.0))
        while self._loop.faults:
            yield random.expovariate(1 / pause)
            if not self._loop.faults:
                return
            blow = random.choices(self._blows, weights)[0][1]
            self._loop.say("chaos", blow.__name__.strip("_"))
            blow()

    def calm(self) -> None:
        """Faults stop: programs are there again; what is dead stays dead, a lost node may stay lost."""
        self._loop.say("chaos", "stops")
        self._loop.faults = False
        self._store.down_until = self._api.down_until = 0.0
        for pod in self._pods:
            pod.api_cut_until = pod.store_cut_until = 0.0
            if self._loop.random.random() < 0.5:
                pod.node_gone = False
        for operator in self._operators:
            operator.frozen_until = 0.0
            operator.begin()

    def _pod(self) -> Pod | None:
        living = [pod for pod in self._pods if not pod.ended]
        return self._loop.random.choice(living) if living else None

    def _end_process(self) -> None:
        pod = self._pod()
        if pod is not None:
            ends = (Exit(1), Exit(137), Exit(137, "OutOfMemory"), Exit(0), Exit(ExitCode.TRY_AGAIN), Exit(78))
            pod.fault = self._loop.random.choices(ends, (4, 4, 2, 1, 2, 0.3))[0]

    def _freeze_process(self) -> None:
        pod = self._pod()
        if pod is not None:
            pod.frozen_until = self._loop.now + self._loop.random.choice((3.0, 20.0, 90.0))

    def _lose_node(self) -> None:
        pod = self._pod()
        if pod is not None:
            pod.node_gone = True
            pod.api_cut_until = 1e9
            if self._loop.random.random() < 0.5:
                pod.fault = Exit(1)

    def _cut_api(self) -> None:
        pod = self._pod()
        if pod is not None:
            pod.api_cut_until = self._loop.now + self._loop.random.choice((5.0, 40.0))

    def _cut_store(self) -> None:
        pod = self._pod()
        if pod is not None:
            pod.store_cut_until = self._loop.now + self._loop.random.choice((3.0, 30.0))

    def _delete_pod(self) -> None:
        pod = self._pod()
        if pod is not None:
            self._api.delete_pod(pod.view.name, pod.view.uid)

    def _force_delete_pod(self) -> None:
        """The object goes; the process may live on."""
        pod = self._pod()
        if pod is not None:
            pod.node_gone = self._loop.random.random() < 0.7
            self._api.remove_pod(pod.view.name, pod.view.uid)

    def _delete_lease(self) -> None:
        if self._api.leases:
            del self._api.leases[self._loop.random.choice(sorted(self._api.leases))]

    def _kill_operator(self) -> None:
        operator = self._loop.random.choice(self._operators)
        operator.kill()
        delay = self._loop.random.choice((0.5, 5.0, 30.0))
        self._loop.spawn(self._restart(operator, operator.life), after=delay)

    def _restart(self, operator: Operator, life: int) -> Process:
        if operator.life == life:
            operator.begin()
        return
        yield 0.0

    def _freeze_operator(self) -> None:
        operator = self._loop.random.choice(self._operators)
        operator.frozen_until = self._loop.now + self._loop.random.choice((2.0, 20.0, 60.0))

    def _store_away(self) -> None:
        self._store.down_until = self._loop.now + self._loop.random.choice((2.0, 10.0, 60.0))

    def _api_away(self) -> None:
        self._api.down_until = self._loop.now + self._loop.random.choice((2.0, 10.0, 60.0))

    def _delete_run(self) -> None:
        if self._api.runs:
            self._api.edit_run(self._loop.random.choice(sorted(self._api.runs)), deleting=True)

    def _step_clock(self) -> None:
        self._store.clock_step = self._loop.random.choice((-3600.0, 3600.0, 90000.0))
