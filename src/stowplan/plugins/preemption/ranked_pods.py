"""The pods of every node in order of importance, as arrays that follow the node table.

Victim selection walks that order on each node. The pods are ranked once for every change of a node,
and all classes of preemptors walk all nodes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.array_types import Bools, Floats, Ints, grow
from stowplan.columns.nodeinfo import wrapped
from stowplan.objects.pod import Pod

UNUSED_SLOTS_FACTOR = 2
"""Slots per pod and row above which all rows are compacted. Compacted rows stay below 1.25."""

PRIORITY_MAX = 2**31

OVERFLOW_MARGIN = 2**50
"""Amounts of this size, in base units, may overflow when they are summed."""

PodGrouping = Callable[[Sequence[PodInfo]], list[int]]
"""The number of each pod's group."""

_NOT_STARTED = float("inf")


def pod_start_time(pod: Pod) -> float:
    """Seconds since the epoch; a pod that has not started counts as the youngest."""
    start = pod.status.start_time
    return _NOT_STARTED if start is None else start.timestamp()


def pod_importance(info: PodInfo) -> tuple[int, float]:
    """Sort key, the most important first: higher priority, then the earlier start."""
    return -info.pod.priority, pod_start_time(info.pod)


def expand_ranges(first: Ints, length: Ints) -> tuple[Ints, Ints]:
    """(numbers, owners), both int64: all of first[i] .. first[i] + length[i] - 1, and each one's i.

    first, length: int64 (n_spans,).
    """
    owners = np.repeat(np.arange(length.shape[0]), length)
    before = np.cumsum(length) - length
    return np.arange(owners.shape[0]) + (first - before)[owners], owners


class RankedPods:
    """The pods by row, the most important first; equally important ones in the node's order.

    pods: of a row that has been ranked. first, length: int64 (n_nodes,), the slots of a row.
    priority: int64 (n_slots,). start: float64 (n_slots,), see `pod_start_time`. layout: changes
    when rows that were not touched got other slots. has_out_of_range_priority: whether some pod has
    a priority beyond 32 bits; such pods may be ranked wrongly.
    """

    def __init__(self) -> None:
        self.pods: dict[int, list[PodInfo]] = {}
        self.layout = 0
        self.has_out_of_range_priority = False
        self._generations = (-1, 0)
        self._n_slots = 0
        self._grouping: tuple[object, PodGrouping | None] = (None, None)
        self.first: Ints = np.zeros(0, dtype=np.int64)
        self.length: Ints = np.zeros(0, dtype=np.int64)
        self._room: Ints = np.zeros(0, dtype=np.int64)
        self._stale: Bools = np.zeros(0, dtype=np.bool_)
        self.priority: Ints = np.zeros(0, dtype=np.int64)
        self.start: Floats = np.zeros(0, dtype=np.float64)
        self._amounts: dict[str, Ints] = {}
        self._huge: set[str] = set()
        self._groups: Ints = np.zeros(0, dtype=np.int64)

    @property
    def n_slots(self) -> int:
        """Number of slots, including empty ones."""
        return self._n_slots

    def follow(self, table: NodeTable, rows: Ints) -> None:
        """Rank these rows again where they changed."""
        self._note_touched(table)
        layout = self.layout
        self._rank(table, rows[self._stale[rows]])
        if self.layout != layout:
            # Compaction has made the rest of them stale.
            self._rank(table, rows[self._stale[rows]])

    def _rank(self, table: NodeTable, stale: Ints) -> None:
        if stale.shape[0] == 0:
            return
        numbers = stale.tolist()
        pods = [info for row in numbers for info in table.pods[row]]
        length = np.array([len(table.pods[row]) for row in numbers], dtype=np.int64)
        priority = self._priorities(pods)
        start = np.array([pod_start_time(info.pod) for info in pods], dtype=np.float64)
        # As sorting each row by importance would, which is stable too.
        order = np.lexsort((start, -priority, np.repeat(np.arange(len(numbers)), length)))
        ranked = [pods[place] for place in order.tolist()]
        self._stale[stale] = False
        for row, end, n_pods in zip(
            numbers, np.cumsum(length).tolist(), length.tolist(), strict=True
        ):
            self.pods[row] = ranked[end - n_pods : end]
        self._allocate_slots(stale, length)
        slots, _ = expand_ranges(self.first[stale], self.length[stale])
        self.priority[slots], self.start[slots] = priority[order], start[order]
        self._fill(slots, ranked)

    def _priorities(self, pods: list[PodInfo]) -> Ints:
        """int64 (n_pods,); priorities beyond 32 bits are clamped and noted."""
        found = [info.pod.priority for info in pods]
        if max(found, default=0) > PRIORITY_MAX or min(found, default=0) < -PRIORITY_MAX:
            self.has_out_of_range_priority = True
            found = [min(max(one, -PRIORITY_MAX), PRIORITY_MAX) for one in found]
        return np.array(found, dtype=np.int64)

    def amounts(self, resource: str) -> Ints:
        """int64 (n_slots,): what each pod requests of a resource, base units."""
        if resource not in self._amounts:
            self._amounts[resource] = np.zeros(self.priority.shape[0], dtype=np.int64)
            slots, pods = self._used_slots()
            self._fill_amounts(resource, slots, pods)
        return self._amounts[resource]

    def may_overflow(self, resource: str) -> bool:
        """True when a pod requests less than 0 of a resource, or OVERFLOW_MARGIN or more."""
        self.amounts(resource)
        return resource in self._huge

    def group_by(self, cover: object, grouping: PodGrouping | None) -> None:
        """Record each pod's group from now on. cover: changes when groups start anew."""
        if self._grouping[0] is not cover:
            self._grouping = cover, grouping
            if grouping is not None:
                slots, pods = self._used_slots()
                self._groups = np.zeros(self.priority.shape[0], dtype=np.int64)
                self._groups[slots] = grouping(pods)

    def groups(self, slots: Ints) -> Ints | None:
        """int64 (n_pods,): the groups of the pods in these slots; None where no pod has one."""
        return None if self._grouping[1] is None else self._groups[slots]

    def rows_in(self, groups: Bools) -> Ints:
        """int64: rows with a pod of one of these groups, as of when they were ranked."""
        slots, owners = expand_ranges(self.first, self.length)
        rows: Ints = np.unique(owners[groups[self._groups[slots]]])
        return rows

    def below(self, rows: Ints, priority: int) -> Ints:
        """int64 (n_rows,): how many pods of each row are of lower priority; they stand last."""
        slots, _ = expand_ranges(self.first[rows], self.length[rows])
        sums = np.concatenate(([0], np.cumsum(self.priority[slots] < priority)))
        ends = np.cumsum(self.length[rows])
        n_below: Ints = sums[ends] - sums[ends - self.length[rows]]
        return n_below

    # Internals.

    def _note_touched(self, table: NodeTable) -> None:
        n_nodes, have = table.n_nodes, self._stale.shape[0]
        if n_nodes != have:
            self.first = _resized(self.first, n_nodes)
            self.length = _resized(self.length, n_nodes)
            self._room = _resized(self._room, n_nodes)
            self._stale = _resized(self._stale, n_nodes)
            self._stale[have:] = True
            self.pods = {row: pods for row, pods in self.pods.items() if row < n_nodes}
        generations = table.journal.generation, table.swaps.generation
        if generations == self._generations:
            return
        touched = table.journal.since(self._generations[0])
        swapped = table.swaps.since(self._generations[1])
        self._generations = generations
        if touched is None or swapped is None:
            self._stale[:] = True
        else:
            self._stale[[row for row in touched + swapped if row < n_nodes]] = True

    def _allocate_slots(self, rows: Ints, length: Ints) -> None:
        """Give rows slots for this many pods each: those they have, or new ones at the end."""
        self.length[rows] = length
        moving = rows[length > self._room[rows]]
        if moving.shape[0] == 0:
            return
        n_used = int(self.length.sum()) + self.length.shape[0]
        if self._n_slots > UNUSED_SLOTS_FACTOR * n_used:
            self._compact_slots(rows)
            return
        room = self.length[moving] + self.length[moving] // 4 + 1
        self._room[moving] = room
        self.first[moving] = self._n_slots + np.cumsum(room) - room
        self._grow(self._n_slots + int(room.sum()))

    def _compact_slots(self, rows: Ints) -> None:
        """Have all rows but these ranked again on their next use."""
        self.layout += 1
        self._stale[:] = True
        self._stale[rows] = False
        kept = self.length[rows]
        self._n_slots = 0
        self._room[:] = self.length[:] = self.first[:] = 0
        self.pods = {row: self.pods[row] for row in rows.tolist()}
        self._allocate_slots(rows, kept)

    def _grow(self, n_slots: int) -> None:
        self._n_slots = n_slots
        self.priority = grow(self.priority, (n_slots,))
        self.start = grow(self.start, (n_slots,))
        self._groups = grow(self._groups, (n_slots,))
        for resource, amounts in self._amounts.items():
            self._amounts[resource] = grow(amounts, (n_slots,))

    def _fill(self, slots: Ints, pods: list[PodInfo]) -> None:
        for resource in self._amounts:
            self._fill_amounts(resource, slots, pods)
        grouping = self._grouping[1]
        if grouping is not None:
            self._groups[slots] = grouping(pods)

    def _fill_amounts(self, resource: str, slots: Ints, pods: list[PodInfo]) -> None:
        requests = [info.footprint.requested.get(resource, 0) for info in pods]
        if requests and (min(requests) < 0 or max(requests) >= OVERFLOW_MARGIN):
            self._huge.add(resource)
            requests = [wrapped(amount) for amount in requests]
        self._amounts[resource][slots] = requests

    def _used_slots(self) -> tuple[Ints, list[PodInfo]]:
        """The slots in use, and their pods."""
        rows = np.array(sorted(self.pods), dtype=np.int64)
        slots, _ = expand_ranges(self.first[rows], self.length[rows])
        return slots, [info for row in rows.tolist() for info in self.pods[row]]


def _resized(array: NDArray[Any], n_rows: int) -> NDArray[Any]:
    resized: NDArray[Any] = np.zeros(n_rows, dtype=array.dtype)
    n_kept = min(n_rows, array.shape[0])
    resized[:n_kept] = array[:n_kept]
    return resized
