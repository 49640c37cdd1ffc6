"""Fairness between queues: what each has of what it deserves, over time.

What a queue deserves is its part of the cluster by weight, at most what it requests and its
capability allows; what others leave is distributed again. Without Queues every namespace is a queue
of weight 1.

Source: Volcano, plugins/proportion; Jain, Chiu and Hawe, "A Quantitative Measure of Fairness"
(1984).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from stowplan.batch.session_plugins.proportion import fill_by_weight
from stowplan.columns.array_types import Floats
from stowplan.experiments.measures.occupancy import Occupancy
from stowplan.objects.meta import Object
from stowplan.objects.podgroup import Queue
from stowplan.objects.quantity import amount


class QueueFairness(NamedTuple):
    """Shares of queues over time.

    times: float64 (n_samples,), seconds. queues: names. shares: float64 (n_queues, n_samples),
    allocated per deserved amount of the resource of which the queue deserves the largest part of
    the cluster, 1 for exactly that; NaN while a queue requests nothing.
    """

    times: Floats
    queues: list[str]
    shares: Floats

    def jain(self) -> Floats:
        """float64 (n_samples,): Jain's index, from 1 / n to 1; NaN with fewer than two queues, and
        while none of them has anything: nothing is no fair share."""
        count = (~np.isnan(self.shares)).sum(axis=0)
        total: Floats = np.nansum(self.shares, axis=0)
        squares = np.nansum(self.shares**2, axis=0)
        found: Floats = np.divide(
            total**2, count * squares, out=np.full(total.shape, np.nan), where=squares > 0
        )
        found[count < 2] = np.nan
        return found

    def mean_jain(self) -> float | None:
        """The mean of Jain's index over the samples that have one; None where none has."""
        values = self.jain()
        return None if np.isnan(values).all() else float(np.nanmean(values))

    def means(self) -> dict[str, float]:
        """Queue -> mean share while it requested something."""
        return {
            name: float(np.nanmean(row))
            for name, row in zip(self.queues, self.shares, strict=True)
            if not np.isnan(row).all()
        }


def queue_fairness(used: Occupancy, objects: Iterable[Object]) -> QueueFairness | None:
    """The shares of a run's queues; None without nodes or pods. objects: Queues among them."""
    if not used.queues or not used.nodes:
        return None
    times = used.sample_times()
    shape = len(used.queues), times.shape[0], len(used.resources)
    has, wants = np.zeros(shape), np.zeros(shape)
    for row in range(len(used.queues)):
        pods = used.queue == row
        start, end = used.start[pods, None], used.end[pods, None]
        running = (start <= times) & (times < end)
        waiting = (used.arrived[pods, None] <= times) & (times < start)
        has[row] = running.T @ used.requests[pods]
        wants[row] = has[row] + waiting.T @ used.requests[pods]
    deserved = _deserved(used, objects, wants)
    offered = used.offered.sum(axis=0)
    parts = np.divide(deserved, offered, out=np.zeros(shape), where=offered > 0)
    dominant = parts.argmax(axis=2, keepdims=True)
    mine = np.take_along_axis(deserved, dominant, axis=2)[:, :, 0]
    taken = np.take_along_axis(has, dominant, axis=2)[:, :, 0]
    shares = np.divide(taken, mine, out=np.full(mine.shape, np.nan), where=mine > 0)
    return QueueFairness(times, used.queues, shares)


def _deserved(used: Occupancy, objects: Iterable[Object], wants: Floats) -> Floats:
    """float64 (n_queues, n_samples, n_resources)."""
    known = {one.name: one for one in objects if isinstance(one, Queue)}
    weights, limits = {}, np.full((len(used.queues), len(used.resources)), np.inf)
    for row, name in enumerate(used.queues):
        queue = known.get(name)
        weights[name] = (queue.spec.weight or 1) if queue else 1
        for resource, most in (queue.spec.capability if queue else {}).items():
            if resource in used.resources:
                limits[row, used.resources.index(resource)] = amount(resource, most)
    offered = used.offered.sum(axis=0)
    found = np.zeros(wants.shape)
    wanted = np.minimum(wants, limits[:, None, :])
    for sample in range(wants.shape[1]):
        for column, whole in enumerate(offered.tolist()):
            asks = dict(zip(used.queues, wanted[:, sample, column].tolist(), strict=True))
            parts = fill_by_weight(whole, asks, weights)
            found[:, sample, column] = [parts[name] for name in used.queues]
    return found
