"""What was seen becomes keys in the queue: the watch, the lists, nudges and polls all end here.

`seen` is all that a watch loop needs to call, so that another loop could stand in Kopf's place.
"""

from collections.abc import Callable, Iterable
from typing import Final

from treadle_api.names import FINALIZER
from treadle_api.records import Json
from treadle_operator.cache import Cache, finished, thread_of_run, uid, version
from treadle_operator.keys import Key, Kind
from treadle_operator.metrics import Metrics
from treadle_operator.views import pod_facts

_KINDS: Final = {"agents": Kind.AGENT, "threads": Kind.THREAD, "runs": Kind.RUN}
_UNADMITTED: Final = frozenset({"", "Pending"})
NUDGE_PAUSE: Final = 0.2
"""Seconds between two passes over one run that nudges may cause: anyone in a namespace may send them."""
NUDGE_BURST: Final = 2
"""So many are heard at once: a short attempt says "claimed" and "settled" within one pause."""

THREAD_PAUSE: Final = 5.0
"""Seconds for which changes of turns are gathered before a Thread's status is looked at."""

ARRIVAL_PAUSE: Final = 10.0
"""Seconds for which a new run of a thread waits to be told: its turn mostly comes sooner and tells it too."""


class Intake:
    """`add` and `add_after` are the queue's. `clock` is monotonic."""

    def __init__(
        self,
        cache: Cache,
        metrics: Metrics,
        *,
        add: Callable[[Key], None],
        add_after: Callable[[Key, float], None],
        clock: Callable[[], float],
    ) -> None:
        self._cache = cache
        self._metrics = metrics
        self._add = add
        self._add_after = add_after
        self._clock = clock
        self._nudged: dict[str, float] = {}

    def seen(self, resource: str, obj: Json, *, gone: bool = False) -> None:
        """Takes in one object as the API server told it. Our own writes come back here and are no news.

        For Runs and Pods `gone` means "deleted or ended" (ended ones leave the watch): the pass looks, except
        for a Run that our own write ended: the pass that wrote goes on with it.
        """
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        before = self._cache.get(resource, namespace, name)
        if gone and before is not None and _ended_by_us(resource, before, obj):
            self._metrics.watch_events.labels(resource, "no").inc()
            return
        news = self._cache.remove(resource, obj) if gone else self._cache.put(resource, obj)
        self._metrics.watch_events.labels(resource, "yes" if news else "no").inc()
        if not news or (gone and before is not None and _done(resource, before)):
            return
        self._wake(resource, obj, before, gone=gone)

    def vanished(self, resource: str, namespace: str, name: str) -> None:
        """A full list no longer has an object that was known: forget it and look."""
        known = self._cache.get(resource, namespace, name)
        if known is None:
            return
        self._cache.remove(resource, known)
        self._metrics.watch_events.labels(resource, "yes").inc()
        if not _done(resource, known):
            self._wake(resource, known, known, gone=True)

    def _wake(self, resource: str, obj: Json, before: Json | None, *, gone: bool) -> None:
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        if resource == "pods":
            if gone or before is None or uid(before) != uid(obj) or pod_facts(before) != pod_facts(obj):
                self._wake_owner(obj, gone=gone)
            return
        self._add(Key(_KINDS[resource], namespace, name))
        if resource == "runs":
            if gone:
                self.thread_changed(namespace, thread_of_run(obj))
            elif before is None:
                self.run_arrived(namespace, thread_of_run(obj))
        else:
            self._wake_waiting(resource, namespace, name)

    def run_changed(self, run_uid: str) -> None:
        """The run's row changed."""
        run = self._cache.run_by_uid(run_uid)
        if run is not None:
            self._add(Key(Kind.RUN, run["metadata"]["namespace"], run["metadata"]["name"]))

    def nudged(self, run_uid: str) -> None:
        """Somebody says that something about a run changed in the store. Unknown runs are ignored.

        How often is bounded by the virtual scheduling algorithm of ITU-T I.371 (GCRA).
        """
        run = self._cache.run_by_uid(run_uid)
        if run is None:
            return
        key = Key(Kind.RUN, run["metadata"]["namespace"], run["metadata"]["name"])
        now = self._clock()
        due = max(self._nudged.get(run_uid, now), now)
        wait = max(0.0, due - now - (NUDGE_BURST - 1) * NUDGE_PAUSE)
        if wait <= NUDGE_PAUSE:  # else a pass that will see this too is planned already
            self._nudged[run_uid] = due + NUDGE_PAUSE
        self._add_after(key, wait)
        if len(self._nudged) > 2 * self._cache.count("runs") + 100:
            self._nudged = {u: t for u, t in self._nudged.items() if t > now}

    def run_arrived(self, namespace: str, thread: str) -> None:
        """The thread has one run more, seen or admitted."""
        self._add_after(Key(Kind.THREAD, namespace, thread), ARRIVAL_PAUSE)

    def thread_changed(self, namespace: str, thread: str) -> None:
        """Its turn changed. Its status is a summary of its runs, and not worth a write for each step."""
        self._add_after(Key(Kind.THREAD, namespace, thread), THREAD_PAUSE)

    def thread_moved_on(self, namespace: str, thread: str) -> None:
        """A run of the thread gave its slot back: its Thread and the runs that wait want a look."""
        self.thread_changed(namespace, thread)
        self._add_all(self._cache.runs_of_thread(namespace, thread))

    def lease_changed(self, run_uid: str, lease: Json | None) -> None:
        """A list of Leases shows a new one, another holder, or that one is gone (None).

        A claim that is shown already is no news. The Lease of a Run that we do not know stands for clean-up:
        the Run has ended, and an operator before us died before it was done with it.
        """
        run = self._cache.run_by_uid(run_uid)
        if run is None and lease is not None:
            self._wake_owner(lease, gone=False)
            return
        holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
        shown = ((run or {}).get("status") or {}).get("ownership") or {}
        if not holder or shown.get("holder") != holder:
            self.run_changed(run_uid)

    def row_without_object(self, namespace: str, run_uid: str) -> None:
        """The store has an unfinished row whose Run object we do not know."""
        self._add(Key(Kind.ROW, namespace, run_uid))

    def _wake_owner(self, child: Json, *, gone: bool) -> None:
        """What goes after its Run is done with, is nobody's business any more."""
        for owner in child["metadata"].get("ownerReferences") or ():
            known = self._cache.run_by_uid(str(owner.get("uid"))) is not None
            if owner.get("kind") == "Run" and (known or not gone):
                self._add(Key(Kind.RUN, child["metadata"]["namespace"], owner["name"]))

    def _wake_waiting(self, resource: str, namespace: str, name: str) -> None:
        """Runs that are not admitted yet may have waited for this very Agent or Thread."""
        if resource == "threads":
            self._add_all(self._cache.runs_of_thread(namespace, name))
            return
        self._add_all(
            run
            for run in self._cache.all("runs")
            if run["metadata"]["namespace"] == namespace
            and (run.get("status") or {}).get("phase", "") in _UNADMITTED
        )

    def _add_all(self, runs: Iterable[Json]) -> None:
        for run in runs:
            if not finished(run):
                self._add(Key(Kind.RUN, run["metadata"]["namespace"], run["metadata"]["name"]))


def _done(resource: str, known: Json) -> bool:
    """Whether this Run left the watch because of what we wrote ourselves: nothing is left to do for it."""
    return (
        resource == "runs"
        and finished(known)
        and FINALIZER not in (known["metadata"].get("finalizers") or ())
    )


def _ended_by_us(resource: str, known: Json, gone: Json) -> bool:
    """Whether this Run left the watch by the very write that we know it from: it ended and still exists. A
    deletion has a version of its own, so nothing has to be read to tell the two apart."""
    return (
        resource == "runs" and finished(known) and uid(known) == uid(gone) and version(known) == version(gone)
    )
