"""Metrics as values: counters, gauges and histograms, for the driver to export.

A series is a name with labels. Nothing is exported here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

Labels = tuple[tuple[str, str], ...]
"""Label names and values, in the order of the metric."""

BUCKETS = tuple(5.0 * 2**k for k in range(10))
"""Upper bounds of buckets, those of kube-batch."""


class Histogram:
    """Histogram buckets. counts: values up to each bound; the last counts those above all
    bounds."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.total += value


class Metrics:
    """Counters, gauges and histograms by (name, labels).

    stopwatch: returns seconds, for measuring durations; without one all durations are 0.
    """

    def __init__(self, stopwatch: Callable[[], float] | None = None) -> None:
        self.stopwatch = stopwatch or _zero_clock
        self.counters: dict[tuple[str, Labels], float] = {}
        self.gauges: dict[tuple[str, Labels], float] = {}
        self.histograms: dict[tuple[str, Labels], Histogram] = {}

    def count(self, name: str, labels: Labels = (), by: float = 1) -> None:
        """Add to a counter."""
        key = name, labels
        self.counters[key] = self.counters.get(key, 0) + by

    def set_gauge(self, name: str, value: float, labels: Labels = ()) -> None:
        """Set a gauge."""
        self.gauges[name, labels] = value

    def keep(self, name: str, labels: Iterable[Labels]) -> None:
        """Delete the gauges and counters of a name with all other labels: those of deleted
        objects."""
        kept = set(labels)
        for series in (self.gauges, self.counters):
            for key in [k for k in series if k[0] == name and k[1] not in kept]:
                del series[key]

    def observe(
        self, name: str, value: float, labels: Labels = (), bounds: tuple[float, ...] = BUCKETS
    ) -> None:
        """Observe a value. bounds: the same for all series of a name."""
        self.histogram(name, labels, bounds).add(value)

    def histogram(
        self, name: str, labels: Labels = (), bounds: tuple[float, ...] = BUCKETS
    ) -> Histogram:
        """A histogram series, for callers that add often."""
        found = self.histograms.get((name, labels))
        if found is None:
            found = self.histograms[name, labels] = Histogram(bounds)
        return found


def _zero_clock() -> float:
    return 0.0
