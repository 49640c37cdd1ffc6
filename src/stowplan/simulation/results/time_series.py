"""Time series of a replay, one row per sample.

Fragmentation of a resource is the share of its free amount that a random pod of the workload, among
those that request it, cannot use because the node lacks that or another resource. Only amounts
count, not node affinity or taints.

Source: after the fragmentation measure of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.insight.gpu_fragmentation import (
    CardFragmentationMeter,
    FollowedCardFragmentation,
)
from stowplan.objects.devices.gpu_cards import CARD_MILLI
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.queue import SchedulingQueue
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.event_queue import in_seconds

SampleRow = dict[str, float | int]

ROWS_MAX = 2000
"""Rows kept; above this every second row is dropped and the interval doubled."""
CLASSES_MAX = 64
"""Pod sizes used for fragmentation, the most frequent ones."""
QUEUE_STATES = ("active", "backoff", "unschedulable", "gated", "binding")
NOT_TRIED = "not tried yet"


class PodSizes:
    """Distinct resource requests of a workload's pods, most frequent first."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        by_spec: dict[int, dict[str, int]] = {}
        counts: Counter[tuple[tuple[str, int], ...]] = Counter()
        for pod in pods:
            asks = by_spec.get(id(pod.spec))
            if asks is None:
                asks = by_spec[id(pod.spec)] = {k: v for k, v in requested(pod).items() if v > 0}
            counts[tuple(sorted(asks.items()))] += 1
        found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:CLASSES_MAX]
        self.sizes = [(dict(asks), count) for asks, count in found]
        self._names = sorted({name for asks, _ in self.sizes for name in asks})
        # int64 (n_sizes, n_names): requested amounts.
        self._asks = np.array(
            [[asks.get(name, 0) for name in self._names] for asks, _ in self.sizes], dtype=np.int64
        ).reshape(len(self.sizes), len(self._names))
        # By name: (size, number of pods) of the sizes that request it.
        self._askers: dict[str, list[tuple[int, int]]] = {}
        for i, (asks, n_pods) in enumerate(self.sizes):
            for name in asks:
                self._askers.setdefault(name, []).append((i, n_pods))

    def fragmentation(self, nodes: NodeTable) -> dict[str, float]:
        """Resource -> share of the free amount that pods requesting it cannot use."""
        if not self._names:
            return {}
        names = [name for name in nodes.resources.values if name != "pods"]
        left = {name: _free(nodes, name) for name in names}
        nowhere = np.zeros(nodes.n_nodes, dtype=np.int64)
        free = np.stack([left.get(name, nowhere) for name in self._names])
        slots = nodes.pod_limit > nodes.pod_count
        # bool (n_sizes, n_nodes): nodes with enough of everything.
        fits = slots & (free >= self._asks[:, :, None]).all(axis=1)
        usable = (fits @ free.T).tolist()
        total = free.sum(axis=1).tolist()
        found: dict[str, float] = {}
        for name, askers in self._askers.items():
            place = self._names.index(name)
            whole = total[place]
            if whole:
                # Python integers, since bytes times pods may exceed 64 bits.
                lost = sum(n_pods * (whole - usable[i][place]) for i, n_pods in askers)
                found[name] = lost / sum(n_pods for _, n_pods in askers) / whole
        return found


def _free(nodes: NodeTable, name: str) -> NDArray[np.int64]:
    """int64 (n_nodes,): free amount, 0 where a node is overcommitted."""
    left: NDArray[np.int64] = np.maximum(nodes.allocatable(name) - nodes.requested(name), 0)
    return left


class TimeSeries:
    """Samples of a replay; thinned out above `ROWS_MAX`."""

    def __init__(self, sizes: PodSizes, cards: CardFragmentationMeter | None = None) -> None:
        """cards: measures GPU cards; None for a cluster without."""
        self.rows: list[SampleRow] = []
        self._sizes = sizes
        self._cards = None if cards is None else FollowedCardFragmentation(cards)
        self._skip = 1
        self._taken = 0
        self._state: object = None
        self._figures: SampleRow = {}

    def take(self, now: int, scheduler: Scheduler) -> None:
        """Take a sample, unless the interval is now longer."""
        self._taken += 1
        if (self._taken - 1) % self._skip:
            return
        queue, nodes = scheduler.queue, scheduler.cache.nodes
        row: SampleRow = {"time_s": in_seconds(now), "queue": len(queue)}
        row |= dict.fromkeys(QUEUE_STATES, 0)
        row["active"], row["backoff"] = len(queue.active), len(queue.backoff)
        row["binding"] = len(scheduler.bindings)
        if len(scheduler.extender_attempts):
            row["awaiting_extender"] = len(scheduler.extender_attempts)
        for lane in scheduler.lanes.batch:
            row["awaiting_session"] = lane.n_waiting
        for reason, count in sorted(pending(queue).items()):
            row[f"pending.{reason}"] = count
        row["gated"] = sum(1 for entry in queue.unschedulable_pods if entry.gated_by)
        row["unschedulable"] = len(queue.unschedulable_pods) - row["gated"]
        # Deprecated: the old name of the column, for one release.
        row["parked"] = row["unschedulable"]
        row |= self._figures_of(nodes)
        self.rows.append(row)
        if len(self.rows) > ROWS_MAX:
            del self.rows[1::2]
            self._skip *= 2

    def _figures_of(self, nodes: NodeTable) -> SampleRow:
        """What a sample has of nodes and their pods; kept until these change."""
        state = nodes.marks, nodes.shape
        if state == self._state:
            return self._figures
        row: SampleRow = {"nodes": nodes.n_nodes}
        for name, share in utilisation(nodes).items():
            row[f"utilisation.{name}"] = round(share, 6)
        for name, share in sorted(self._sizes.fragmentation(nodes).items()):
            row[f"fragmentation.{name}"] = round(share, 6)
        self._take_cards(row, nodes)
        self._state, self._figures = state, row
        return row

    def _take_cards(self, row: SampleRow, nodes: NodeTable) -> None:
        """Fragments of the cards as a share of their capacity, by cause and together."""
        found = None if self._cards is None else self._cards.totals(nodes)
        if found is None:
            return
        whole = found.cards * CARD_MILLI
        row["gpu_cards.idle"] = round(found.idle_milli / whole, 6)
        row["gpu_cards.fragment"] = round(found.of_capacity, 6)
        for cause, milli in found.by_cause.items():
            row[f"gpu_cards.{cause}"] = round(milli / whole, 6)

    def csv(self) -> bytes:
        """The rows as CSV, with every column that occurs; missing values are 0."""
        first = ("time_s", "queue", *QUEUE_STATES, "nodes")
        rest = sorted({name for row in self.rows for name in row} - set(first))
        text = io.StringIO()
        writer = csv.DictWriter(text, (*first, *rest), restval=0, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue().encode()

    def means(self, kind: str, until_s: float) -> dict[str, dict[str, float]]:
        """Resource -> mean of the samples up to a time and peak of all samples.

        kind: `utilisation`, `fragmentation` or `gpu_cards`.
        """
        found: dict[str, list[tuple[float, float]]] = {}
        for row in self.rows:
            for name, value in row.items():
                if name.startswith(f"{kind}."):
                    there = found.setdefault(name.partition(".")[2], [])
                    there.append((row["time_s"], float(value)))
        n_rows = max(sum(row["time_s"] <= until_s for row in self.rows), 1)
        means = {
            name: sum(value for at, value in values if at <= until_s) / n_rows
            for name, values in found.items()
        }
        return {
            name: {"mean": round(means[name], 6), "peak": max(value for _, value in values)}
            for name, values in sorted(found.items())
        }


def pending(queue: SchedulingQueue) -> dict[str, int]:
    """Plugins that rejected pending pods, joined by `+` -> number of pods."""
    counts: Counter[str] = Counter()
    # Few plugins reject many pods.
    alike = Counter(entry.gated_by or entry.refusers for entry in queue)
    for refusers, n_pods in alike.items():
        name = refusers if isinstance(refusers, str) else "+".join(sorted(refusers))
        counts[name or NOT_TRIED] += n_pods
    return dict(counts)


def utilisation(nodes: NodeTable) -> dict[str, float]:
    """Resource -> requested share of the allocatable amount."""
    return {
        name: requested / allocatable
        for name, (requested, allocatable) in resource_use(nodes).items()
        if allocatable
    }


def resource_use(nodes: NodeTable) -> dict[str, tuple[int, int]]:
    """Resource -> (requested, allocatable) amount of all nodes, sorted by name."""
    found = {}
    for name in sorted(nodes.resources.values):
        taken = nodes.pod_count if name == "pods" else nodes.requested(name)
        found[name] = int(taken.sum()), int(nodes.allocatable(name).sum())
    return found
