"""What Prometheus may ask. Labels are bounded: kinds, results and phases, never names of objects."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

Gauges = Callable[[], Mapping[str, float]]
Phases = Callable[[], Tally[str]]

_PASS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """Counters that the parts move. Gauges are read from their source when asked for (`watch`)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Counter(
            "treadle_reconciles_total",
            "Passes, by kind of object and result (ok, conflict, unavailable, error).",
            ("kind", "result"),
            registry=self.registry,
        )
        self.duration = Histogram(
            "treadle_reconcile_duration_seconds",
            "Duration of a pass.",
            ("kind",),
            buckets=_PASS_BUCKETS,
            registry=self.registry,
        )
        self.status_writes = Counter(
            "treadle_status_writes_total",
            "Statuses sent to the API server.",
            ("kind",),
            registry=self.registry,
        )
        self.requests = Counter(
            "treadle_requests_total",
            "Requests to the API server; a watch is not counted.",
            ("method", "resource"),
            registry=self.registry,
        )
        self.actions = Counter(
            "treadle_actions_total", "Actions carried out.", ("action",), registry=self.registry
        )
        self.takeovers = Counter(
            "treadle_takeovers_total",
            "Assignments that ended an earlier attempt, by its class (retry, disruption).",
            ("loss",),
            registry=self.registry,
        )
        self.watch_events = Counter(
            "treadle_watch_events_total",
            "Watched events by kind and whether they were news or an echo of our own write.",
            ("kind", "news"),
            registry=self.registry,
        )
        self.events_dropped = Counter(
            "treadle_events_dropped_total", "Kubernetes Events that were not sent.", registry=self.registry
        )

    def watch(self, gauges: Gauges, phases: Phases) -> None:
        """Adds the gauges: `gauges()` gives metric name -> value, `phases()` unfinished Runs by phase."""
        self.registry.register(_Live(gauges, phases))


class _Live(Collector):
    _HELP: Mapping[str, str] = {
        "treadle_queue_depth": "Keys that wait for their pass.",
        "treadle_queue_running": "Passes under way.",
        "treadle_queue_oldest_seconds": "Age of the key that waits or works longest.",
        "treadle_loop_lag_seconds": "How late the event loop last was.",
        "treadle_leader": "1 while this operator leads.",
        "treadle_store_up": "1 while Postgres answers.",
        "treadle_leases": "Leases of runs at the last list.",
    }

    def __init__(self, gauges: Gauges, phases: Phases) -> None:
        self._gauges = gauges
        self._phases = phases

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())  # nothing is read before the first question

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, value in self._gauges().items():
            yield GaugeMetricFamily(name, self._HELP[name], value=value)
        runs = GaugeMetricFamily("treadle_runs", "Unfinished Runs by phase.", labels=["phase"])
        for phase, count in sorted(self._phases().items()):
            runs.add_metric([phase], count)
        yield runs
