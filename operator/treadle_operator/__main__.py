"""`python -m treadle_operator`: the only place where the parts are put together, started and stopped."""

import asyncio
import logging
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack
from time import monotonic
from typing import Final

from treadle_operator import logs
from treadle_operator.act import RunActor
from treadle_operator.act_pods import Pods
from treadle_operator.act_threads import ThreadActor
from treadle_operator.background import Background, unless
from treadle_operator.cache import Cache
from treadle_operator.clock import StoreClock
from treadle_operator.events import Recorder
from treadle_operator.handlers import watch
from treadle_operator.health import Health, HealthServer
from treadle_operator.intake import Intake
from treadle_operator.keys import Key
from treadle_operator.kube import Kube
from treadle_operator.kube_errors import ClusterError, retry_after
from treadle_operator.kube_login import Credentials
from treadle_operator.leader import Elector, LeadershipLost
from treadle_operator.leases import LIST_EVERY, LeaseBook
from treadle_operator.ledger import Ledger
from treadle_operator.memory import Memory
from treadle_operator.metrics import Metrics
from treadle_operator.objects import Objects
from treadle_operator.observe import RunObserver
from treadle_operator.observe_others import OtherObserver
from treadle_operator.reconcile import Reconciler, log_failure
from treadle_operator.settings import Settings, SettingsError
from treadle_operator.sources import (
    POLL_EVERY,
    RESYNC_EVERY,
    LeaseLoop,
    Nudges,
    Resync,
    StorePoll,
    forever,
)
from treadle_operator.stream import Stream
from treadle_operator.workqueue import Backoff, WorkQueue
from treadle_store.streams import open_wire

PAUSE: Final = 2.0
"""Seconds between two tries to reach the API server at the start."""
WATCH_END: Final = 10.0

log = logging.getLogger("treadle_operator")


class Operator:
    """The parts of one process, wired. `run` returns the exit code."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._namespaces = settings.watch_namespaces or (None,)
        self._stop = asyncio.Event()
        self._metrics = Metrics()
        self._health = Health(monotonic)
        self._credentials = Credentials(settings.kubeconfig, settings.kube_context)
        self._kube = Kube(
            self._credentials,
            sent=lambda method, resource: self._metrics.requests.labels(method, resource).inc(),
        )
        self._cache = Cache()
        self._leases = LeaseBook(monotonic)
        self._memory = Memory(monotonic)
        self._clock = StoreClock(monotonic)
        self._background = Background()
        self._ledger = Ledger(
            settings.store_dsn,
            connections=settings.store_pool,
            clock=self._clock,
            monotonic=monotonic,
            trouble=lambda sentence: self._health.trouble("store", sentence),
        )
        self._elector = Elector(
            self._kube,
            namespace=settings.namespace,
            name=settings.leader_lease,
            identity=settings.identity,
            clock=monotonic,
        )

    async def run(self) -> int:
        self._listen_to_signals()
        server = HealthServer(
            self._health, self._metrics, host=self._settings.http_host, port=self._settings.http_port
        )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._kube.close)
            stack.push_async_callback(self._ledger.close)
            stack.push_async_callback(self._background.cancel)
            stack.push_async_callback(server.stop)
            port = await server.start()
            log.info("The operator started", extra={"identity": self._settings.identity, "port": port})
            self._background.start("loop lag", self._health.watch_loop())
            self._background.start("store", self._ledger.run())
            if not await unless(self._stop, self._reach_cluster()):
                return 0
            if self._settings.leader_lease and not await unless(self._stop, self._elector.acquire()):
                return 0
            return await self._lead(stack)

    async def _lead(self, stack: AsyncExitStack) -> int:
        holding = None
        if self._settings.leader_lease:
            holding = self._background.start("leader", self._elector.hold())
        url = self._settings.stream_url
        stream = Stream(await stack.enter_async_context(open_wire(url)) if url else None)
        recorder = Recorder(
            self._kube, identity=self._settings.identity, dropped=self._metrics.events_dropped.inc
        )
        queue, intake = self._pipeline(stream, recorder)
        resync = Resync(self._kube, self._cache, intake, self._namespaces)
        lease_loop = LeaseLoop(self._kube, self._leases, intake, self._namespaces, monotonic)
        poll = StorePoll(self._ledger, self._cache, intake, self._namespaces)
        nudges = Nudges(stream, self._ledger, poll, intake, self._namespaces)
        if not await unless(self._stop, self._see_everything(resync, lease_loop)):
            await self._elector.release()
            return 0
        trouble = self._api_trouble
        self._background.start("resync", forever("lists", resync.once, RESYNC_EVERY, trouble))
        self._background.start("leases", forever("Leases", lease_loop.once, LIST_EVERY, trouble))
        self._background.start("poll", forever("the store", poll.once, POLL_EVERY, lambda _: None))
        if url:
            self._background.start("nudges", nudges.listen())
        self._background.start("events", recorder.run())
        watch_stop = asyncio.Event()
        watching = self._background.start(
            "watch",
            watch(
                intake.seen,
                self._credentials.login,
                namespaces=self._settings.watch_namespaces,
                stop=watch_stop,
                started=self._listen_to_signals,
            ),
        )
        queue.start()
        code = await self._until_the_end()
        await queue.stop(self._settings.stop_grace if code == 0 else 1.0)
        await recorder.drain(2.0)
        await self._background.cancel(watching, *([holding] if holding is not None else []))
        watch_stop.set()
        await asyncio.wait({watching}, timeout=WATCH_END)
        await self._background.cancel()
        await self._elector.release()
        return code

    def _pipeline(self, stream: Stream, recorder: Recorder) -> tuple[WorkQueue[Key], Intake]:
        """The queue and what feeds it: observe, decide, act behind one call."""
        objects = Objects(self._kube, self._cache)
        queue: WorkQueue[Key] = WorkQueue(
            lambda key: reconciler(key),
            at_once=self._settings.passes,
            backoff=Backoff(base=0.1),
            retry_after=retry_after,
            on_failure=log_failure,
        )
        intake = Intake(self._cache, self._metrics, add=queue.add, add_after=queue.add_after, clock=monotonic)
        pods = Pods(self._kube, objects, self._leases, default_image=self._settings.default_image)
        reconciler = Reconciler(
            runs=RunObserver(
                self._kube,
                objects,
                self._ledger,
                cache=self._cache,
                leases=self._leases,
                memory=self._memory,
                clock=self._clock,
            ),
            others=OtherObserver(
                objects, self._ledger, cache=self._cache, memory=self._memory, clock=self._clock
            ),
            run_actor=RunActor(
                objects,
                pods,
                self._ledger,
                stream,
                memory=self._memory,
                metrics=self._metrics,
                failpoints=self._settings.failpoints,
            ),
            thread_actor=ThreadActor(objects, self._ledger, metrics=self._metrics),
            objects=objects,
            ledger=self._ledger,
            intake=intake,
            recorder=recorder,
            memory=self._memory,
            leases=self._leases,
            metrics=self._metrics,
            failpoints=self._settings.failpoints,
        )
        self._health.oldest_key = queue.oldest_age
        self._metrics.watch(lambda: self._gauges(queue), self._phases)
        return queue, intake

    async def _reach_cluster(self) -> None:
        """Returns once the API server answers; until then readiness says why not."""
        while True:
            try:
                await self._kube.open()
                await self._kube.ping()
            except ClusterError as error:
                if self._health.trouble("api server", str(error)):
                    log.warning("The API server cannot be used", extra={"error": str(error)})
                await self._kube.close()
                await asyncio.sleep(PAUSE)
            else:
                self._health.trouble("api server", "")
                return

    async def _see_everything(self, resync: Resync, lease_loop: LeaseLoop) -> None:
        """The first full lists: no pass begins on half a picture."""
        await self._ledger.looked()
        while True:
            try:
                await resync.once()
                await lease_loop.once()
            except ClusterError as error:
                self._api_trouble(str(error))
                await asyncio.sleep(PAUSE)
            else:
                self._api_trouble("")
                return

    def _api_trouble(self, sentence: str) -> None:
        if self._health.trouble("api server", sentence) and sentence:
            log.warning("The API server cannot be used", extra={"error": sentence})

    async def _until_the_end(self) -> int:
        """0 after a signal, 1 where a part ended by itself."""
        ended = await self._background.first_end(self._stop)
        if ended is None:
            log.info("The operator was told to stop")
            return 0
        error = None if ended.cancelled() else ended.exception()
        if isinstance(error, LeadershipLost):
            log.warning("Leadership was lost, this process ends", extra={"error": str(error)})
        else:
            part = ended.get_name()
            log.error("A part ended, this process ends", extra={"part": part}, exc_info=error)
        return 1

    def _listen_to_signals(self) -> None:
        """Ours stand over Kopf's (it sets its own when it starts): passes end before the watch does."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    def _gauges(self, queue: WorkQueue[Key]) -> dict[str, float]:
        leading = not self._settings.leader_lease or self._elector.leading
        return {
            "treadle_queue_depth": queue.depth,
            "treadle_queue_running": queue.running,
            "treadle_queue_oldest_seconds": queue.oldest_age(),
            "treadle_loop_lag_seconds": self._health.lag,
            "treadle_leader": float(leading),
            "treadle_store_up": float(self._ledger.down_for() is None),
            "treadle_leases": len(self._leases),
        }

    def _phases(self) -> Counter[str]:
        return Counter((run.get("status") or {}).get("phase") or "Pending" for run in self._cache.all("runs"))


def main() -> int:
    try:
        settings = Settings.from_environ()
    except SettingsError as error:
        logs.configure("INFO")
        log.error("The configuration cannot be used", extra={"error": str(error)})
        return 78
    logs.configure(settings.log_level)
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    return await Operator(settings).run()


if __name__ == "__main__":
    sys.exit(main())
