"""Exposition of the scheduler's metrics in the Prometheus text format.

Source: kube-scheduler v1.36, scheduler/metrics; kube-batch v0.5, pkg/scheduler/metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from stowplan._version import __version__
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.live import metrics_help
from stowplan.driver.live.metrics_help import help_of
from stowplan.framework.clusterevents import ClusterEvent
from stowplan.framework.metrics import Histogram, Labels
from stowplan.insight.fairness.findings import FindingKind
from stowplan.insight.gpu_fragmentation import CardFragmentationWatch
from stowplan.objects.devices.gpu_cards import CARD_MILLI
from stowplan.queue.pod_record import SubQueue

if TYPE_CHECKING:
    from stowplan.driver.live.scheduler_server import SchedulerServer

Family = TypeVar("Family", bound=Metric)

CONTENT_TYPE = CONTENT_TYPE_LATEST
POPPED = "PodPopped"
QUEUES = {
    SubQueue.ACTIVE: "active",
    SubQueue.BACKOFF: "backoff",
    SubQueue.UNSCHEDULABLE: "unschedulable",
    SubQueue.GATED: "unschedulable",
}


class SchedulerCollector(Collector):
    """Collects the metrics that are looked up when the page is read."""

    def __init__(self, server: SchedulerServer) -> None:
        self._server = server
        self._cards = CardFragmentationWatch()

    def collect(self) -> Iterable[Metric]:
        yield self._pending()
        yield self._incoming()
        yield self._unschedulable()
        yield self._in_flight()
        yield self._cached()
        yield self._led()
        yield self._requests()
        yield self._informed()
        yield self._findings()
        yield from self._gpu_cards()
        yield from self._recording()
        yield from self._counted()
        yield _family(InfoMetricFamily, metrics_help.BUILD_INFO, value={"version": __version__})

    def _pending(self) -> Metric:
        found = _family(GaugeMetricFamily, metrics_help.PENDING_PODS, labels=("queue",))
        for queue, count in pending_pods(self._server).items():
            found.add_metric((queue,), count)
        return found

    def _incoming(self) -> Metric:
        found = _family(CounterMetricFamily, metrics_help.INCOMING_PODS, labels=("queue", "event"))
        totals: Counter[tuple[str, str]] = Counter()
        for (place, cause), count in list(self._server.scheduler.queue.incoming.items()):
            event = cause.label if isinstance(cause, ClusterEvent) else cause
            totals[QUEUES[place], event] += count
        for labels, count in totals.items():
            found.add_metric(labels, count)
        return found

    def _unschedulable(self) -> Metric:
        found = _family(
            GaugeMetricFamily, metrics_help.UNSCHEDULABLE_PODS, labels=("plugin", "profile")
        )
        counts = Counter(
            (plugin, entry.pod.spec.scheduler_name)
            for entry in self._server.scheduler.queue
            for plugin in entry.refusers
        )
        for labels, count in counts.items():
            found.add_metric(labels, count)
        return found

    def _in_flight(self) -> Metric:
        found = _family(GaugeMetricFamily, metrics_help.INFLIGHT_EVENTS, labels=("event",))
        log = self._server.scheduler.queue.in_flight.log()
        counts = {POPPED: 0}
        for one in log:
            event = POPPED if isinstance(one, str) else one.event.label
            counts[event] = counts.get(event, 0) + 1
        for event, count in counts.items():
            found.add_metric((event,), count)
        return found

    def _cached(self) -> Metric:
        cache = self._server.scheduler.cache
        found = _family(GaugeMetricFamily, metrics_help.CACHE_SIZE, labels=("type",))
        found.add_metric(("nodes",), cache.nodes.n_nodes)
        found.add_metric(("pods",), int(cache.nodes.pod_count.sum()))
        found.add_metric(("assumed_pods",), len(cache.assumed()))
        return found

    def _led(self) -> Metric:
        found = _family(GaugeMetricFamily, metrics_help.MASTER_STATUS, labels=("name",))
        election_config = self._server.options.election_config
        name = "" if election_config is None else election_config.name
        found.add_metric((name,), float(self._server.leadership.leads))
        return found

    def _requests(self) -> Metric:
        found = _family(
            CounterMetricFamily, metrics_help.REQUESTS, labels=("code", "method", "host")
        )
        api = self._server.metrics_recorder.api
        host = self._server.options.client_config.server.partition("//")[2]
        for (method, code), count in dict(api.n_sent if api is not None else {}).items():
            found.add_metric((str(code) if code else "<error>", method, host), count)
        return found

    def _informed(self) -> Metric:
        found = _family(GaugeMetricFamily, metrics_help.INFORMER_OBJECTS, labels=("resource",))
        informers = self._server.informers
        for informer in informers.informers if informers is not None else ():
            found.add_metric((informer.resource.title,), len(informer))
        return found

    def _findings(self) -> Metric:
        found = _family(GaugeMetricFamily, metrics_help.FAIRNESS_FINDINGS, labels=("kind",))
        counts = Counter(one.kind for one in self._server.fairness_watch.findings(monotonic_ns()))
        for kind in FindingKind:
            found.add_metric((kind.value,), counts[kind.value])
        return found

    def _gpu_cards(self) -> Iterator[Metric]:
        nodes = self._server.scheduler.cache.nodes
        found = self._cards.measure(nodes, self._server.deciders.configuration)
        if found is None:
            return
        yield _family(GaugeMetricFamily, metrics_help.GPU_CARDS, value=float(found.cards))
        idle = found.idle_milli / CARD_MILLI
        yield _family(GaugeMetricFamily, metrics_help.GPU_IDLE_CARDS, value=idle)
        fragments = _family(GaugeMetricFamily, metrics_help.GPU_FRAGMENT_CARDS, labels=("cause",))
        for cause, milli in found.by_cause.items():
            fragments.add_metric((cause,), milli / CARD_MILLI)
        yield fragments

    def _recording(self) -> Iterator[Metric]:
        recorder = self._server.options.recorder
        if recorder is None:
            return
        n_bytes, stopped = recorder.n_bytes, bool(recorder.failure)
        yield _family(CounterMetricFamily, metrics_help.RECORDING_BYTES, value=n_bytes)
        yield _family(GaugeMetricFamily, metrics_help.RECORDING_STOPPED, value=float(stopped))

    def _counted(self) -> Iterator[Metric]:
        metrics = self._server.metrics_recorder.counted
        for name, series in _by_name(metrics.counters).items():
            names = _label_names(series)
            counter = _family(CounterMetricFamily, name, labels=names)
            for labels, count in series:
                counter.add_metric(_values(labels), count)
            yield counter
        for name, series in _by_name(metrics.gauges).items():
            level = _family(GaugeMetricFamily, name, labels=_label_names(series))
            for labels, value in series:
                level.add_metric(_values(labels), value)
            yield level
        for name, series in _by_name(metrics.histograms).items():
            spread = _family(HistogramMetricFamily, name, labels=_label_names(series))
            for labels, one in series:
                spread.add_metric(_values(labels), _histogram_buckets(one), one.total)
            yield spread


def _family(kind: type[Family], name: str, **fields: Any) -> Family:
    """An empty family with its HELP text; the text format adds the suffix of its kind again."""
    base = name.removesuffix("_total").removesuffix("_info")
    return kind(base, help_of(name), **fields)


def _by_name(found: dict[tuple[str, Labels], Any]) -> dict[str, list[tuple[Labels, Any]]]:
    groups: dict[str, list[tuple[Labels, Any]]] = {}
    for (name, labels), value in list(found.items()):
        groups.setdefault(name, []).append((labels, value))
    return groups


def _label_names(series: list[tuple[Labels, Any]]) -> tuple[str, ...]:
    return tuple(name for name, _ in series[0][0])


def _values(labels: Labels) -> tuple[str, ...]:
    return tuple(value for _, value in labels)


def _histogram_buckets(one: Histogram) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip(one.bounds, one.counts, strict=False):
        total += count
        found.append((str(float(bound)), total))
    found.append(("+Inf", one.count))
    return found


def pending_pods(server: SchedulerServer) -> dict[str, int]:
    """Number of pending pods in each part of the queue, by kube-scheduler's queue names."""
    queue = server.scheduler.queue
    gated = sum(1 for entry in list(queue.unschedulable_pods) if is_gated(entry))
    return {
        "active": len(queue.active),
        "backoff": len(queue.backoff),
        "unschedulable": len(queue.unschedulable_pods) - gated,
        "gated": gated,
    }


def is_gated(entry: Any) -> bool:
    """True for a gated pod: a PreEnqueue plugin keeps it out of the active queue."""
    return bool(getattr(entry, "gated_by", ""))


def exposition_text(server: SchedulerServer) -> bytes:
    """All metrics in the Prometheus text format."""
    return generate_latest(server.metrics_recorder.registry)
