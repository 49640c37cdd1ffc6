"""Amounts of queues over time: one point in ten seconds of the last hour, one a minute of the
last day."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping

from stowplan.objects.encoding.tree import Tree

FINE_MS, FINE_POINTS = 10_000, 360
COARSE_MS, COARSE_POINTS = 60_000, 1440
FIELDS = ("allocated", "deserved", "guarantee", "borrowed", "lent", "pending")
Key = tuple[str, str, str, str]
"""Scheduler, queue, resource, field."""
Point = tuple[float, Mapping[Key, float]]


class QueueHistory:
    """Bounded; a point that comes too early is left out."""

    def __init__(self) -> None:
        self._fine: deque[Point] = deque(maxlen=FINE_POINTS)
        self._coarse: deque[Point] = deque(maxlen=COARSE_POINTS)

    def add(self, time: float, schedulers: Iterable[Tree]) -> None:
        """Keep the amounts of a moment. time: milliseconds since 1970. schedulers: as in
        `GET queues`."""
        due = [
            kept
            for kept, every in ((self._fine, FINE_MS), (self._coarse, COARSE_MS))
            if not kept or time - kept[-1][0] >= every
        ]
        if not due:
            return
        values: dict[Key, float] = {}
        for scheduler in schedulers:
            for queue in scheduler["queues"]:
                for field in FIELDS:
                    for resource, amount in (queue.get(field) or {}).items():
                        key = scheduler["schedulerName"], queue["name"], resource, field
                        values[key] = amount
        for kept in due:
            kept.append((time, values))

    def tree(self, since: float) -> Tree:
        """Points from `since`, oldest first: the coarse ones before the first fine one."""
        fine = list(self._fine)
        first = fine[0][0] if fine else float("inf")
        points = [one for one in self._coarse if one[0] < first] + fine
        points = points[bisect_left([time for time, _ in points], since) :]
        keys = sorted({key for _, values in points for key in values})
        series = [
            {
                "scheduler": key[0],
                "queue": key[1],
                "resource": key[2],
                "field": key[3],
                "values": [values.get(key) for _, values in points],
            }
            for key in keys
        ]
        return {"times": [time for time, _ in points], "series": series}
