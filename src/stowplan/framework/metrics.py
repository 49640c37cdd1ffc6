"""Metrics: counts, levels and distributions as values, for whoever drives the machine to export.

A series is a name and labels. Names say everything that users see of them; nothing here is sent
anywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

Labels = tuple[tuple[str, str], ...]
"""Names and values, in the order of the metric."""

BUCKETS = tuple(5.0 * 2**k for k in range(10))
"""Upper bounds, as kube-batch has them."""


class Histogram:
    """How often a value was at most each bound. counts: the last is of those above all bounds."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        """One value more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.total += value


class Metrics:
    """counters, levels, distributions: by (name, labels).

    stopwatch: seconds from any beginning, for what takes time; without one everything takes none.
    """

    def __init__(self, stopwatch: Callable[[], float] | None = None) -> None:
        self.stopwatch = stopwatch or _zero_clock
        self.counters: dict[tuple[str, Labels], float] = {}
        self.gauges: dict[tuple[str, Labels], float] = {}
        self.histograms: dict[tuple[str, Labels], Histogram] = {}

    def count(self, name: str, labels: Labels = (), by: float = 1) -> None:
        """Something has happened."""
        key = name, labels
        self.counters[key] = self.counters.get(key, 0) + by

    def set_gauge(self, name: str, value: float, labels: Labels = ()) -> None:
        """Something is at a level now."""
        self.gauges[name, labels] = value

    def keep(self, name: str, labels: Iterable[Labels]) -> None:
        """Forget the levels and counts of a name under all other labels: of what is gone."""
        kept = set(labels)
        for series in (self.gauges, self.counters):
            for key in [k for k in series if k[0] == name and k[1] not in kept]:
                del series[key]

    def observe(
        self,
        name: str,
        value: float,
        labels: Labels = (),
        bounds: tuple[float, ...] = BUCKETS,
    ) -> None:
        """Something took, or was, so much. bounds: those of all series of a name."""
        self.histogram(name, labels, bounds).add(value)

    def histogram(
        self, name: str, labels: Labels = (), bounds: tuple[float, ...] = BUCKETS
    ) -> Histogram:
        """A series, to add to often."""
        found = self.histograms.get((name, labels))
        if found is None:
            found = self.histograms[name, labels] = Histogram(bounds)
        return found


def _zero_clock() -> float:
    return 0.0
