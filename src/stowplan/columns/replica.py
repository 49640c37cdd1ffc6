"""Replica: a copy of a live NodeTable, updated at the cost of what changed in between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan.columns.array_types import Ints, copy_changed
from stowplan.columns.incidence import Incidence
from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.objects.node import Node


class Replica:
    """A copy of a NodeTable as of the last `follow`, for a reader that must not see changes.

    `table` has the same rows and the same answers as the source at that time. It may be watched and
    overlaid, but never changed. Pods bound to an unknown node are not copied.
    """

    def __init__(self, source: NodeTable) -> None:
        self.source = source
        self._copy = _Copy(source)
        self._marks = 0, 0
        self.follow()

    @property
    def table(self) -> NodeTable:
        """The copy."""
        return self._copy

    def follow(self) -> int:
        """Copy the rows changed since the last call; returns their number."""
        source, copy = self.source, self._copy
        n_nodes = source.n_nodes
        touched = source.rows_since(self._marks)
        self._marks = source.marks
        if copy.takes_vocabularies(source):
            touched = None
        rows = list(range(n_nodes))
        if touched is not None:
            rows = [row for row in touched if row < n_nodes]
        # All pods are removed before any is added: a node or a pod may have moved between rows.
        for row in range(n_nodes, copy.n_nodes):
            copy.vacate(row, ())
        for row in rows:
            if row < copy.n_nodes:
                copy.vacate(row, source.pods[row])
        copy.resize(n_nodes)
        copy.take_amounts(source, np.array(rows, dtype=np.int64))
        for row in rows:
            copy.occupy(row, source)
        copy.take_order(source)
        return len(rows)


class _Copy(NodeTable):
    """A NodeTable whose rows are copied from another.

    Both share the vocabularies of encoded columns: item numbers never change their meaning, and a
    value that only one of them uses does no harm.
    """

    def __init__(self, source: NodeTable) -> None:
        super().__init__()
        self.resources = source.resources
        self.takes_vocabularies(source)

    def takes_vocabularies(self, source: NodeTable) -> bool:
        """Share the vocabularies of a source; False when they are shared already."""
        mine = self.taints.vocabulary, self.features.vocabulary
        theirs = source.taints.vocabulary, source.features.vocabulary
        if all(one is other for one, other in zip(mine, theirs, strict=True)):
            return False
        self.taints, self.features = Incidence(theirs[0]), Incidence(theirs[1])
        return True

    def vacate(self, row: int, staying: Sequence[PodInfo]) -> None:
        """Empty a row; pods that stay on it are not reported."""
        for info in _without(self.pods[row], staying):
            del self._home[info.uid]
            for watcher in self._watchers:
                watcher.pod_removed(row, info)
        del self._row_of[self.names[row]]
        self.images.clear(row)
        self.ports.write(row, ())

    def resize(self, n_nodes: int) -> None:
        """Remove rows that were emptied, or add rows, at the end."""
        while self.n_nodes > n_nodes:
            self.names.pop()
            self.nodes.pop()
            self.pods.pop()
            self._labels_of.pop()
            self.offered.pop()
            self._moved(self.n_nodes)
            for watcher in self._watchers:
                watcher.row_dropped(self.n_nodes)
        for row in range(self.n_nodes, n_nodes):
            self.names.append("")
            self.nodes.append(Node())
            self.pods.append([])
            self._labels_of.append({})
            self.offered.append()
            for watcher in self._watchers:
                watcher.row_added(row)

    def take_amounts(self, source: NodeTable, rows: Ints) -> None:
        """Copy the numbers of `rows`."""
        self._grow(self.n_nodes)
        self.offered.is_needed = source.offered.is_needed
        for mine, theirs in (
            (self._allocatable, source._allocatable),
            (self._requested, source._requested),
        ):
            for target, amounts in zip(mine, theirs, strict=False):
                copy_changed(target, amounts, rows)
        self._nonzero[:, rows] = source._nonzero[:, rows]
        self._pod_count[rows] = source._pod_count[rows]
        self._unschedulable[rows] = source._unschedulable[rows]

    def occupy(self, row: int, source: NodeTable) -> None:
        """Copy a row of `source` into an empty row."""
        name, node, pods = source.names[row], source.nodes[row], list(source.pods[row])
        arriving = _without(pods, self.pods[row])
        self._row_of[name] = row
        self.names[row], self.nodes[row], self.pods[row] = name, node, pods
        self._labels_of[row] = node.labels
        self.offered.write(row, source.offered.items[row])
        self.labels.write(row)
        self.taints.copy_row(source.taints, row, row)
        self.features.copy_row(source.features, row, row)
        self.images.copy_row(source.images, row)
        self.ports.write(row, source.ports.of_row(row))
        for info in arriving:
            self._home[info.uid] = name
            for watcher in self._watchers:
                watcher.pod_added(row, info)
        self._moved(row)

    def take_order(self, source: NodeTable) -> None:
        """Share the order, whose arrays are replaced and never written."""
        self._order, self._rank, self._order_is_current = source.order, source.rank, True


def _without(pods: Sequence[PodInfo], others: Sequence[PodInfo]) -> list[PodInfo]:
    """Those of `pods` that are not among `others`."""
    known = {id(info) for info in others}
    return [info for info in pods if id(info) not in known]
