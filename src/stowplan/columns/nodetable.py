"""NodeTable: nodes as rows, what plugins read about them as columns, updated incrementally."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from stowplan.columns.array_types import Bools, Ints, grow, grow_columns, move_row, numbers_of
from stowplan.columns.images import ImageIndex
from stowplan.columns.incidence import Incidence, OfferedResources
from stowplan.columns.journal import Journal
from stowplan.columns.labels import LabelColumns
from stowplan.columns.node_order import NodeOrder
from stowplan.columns.nodeinfo import NodeInfo, allocatable_amounts, differences, wrapped
from stowplan.columns.pods.pod_places import PodPlaces
from stowplan.columns.pods.pod_watcher import PodWatcher
from stowplan.columns.pods.podinfo import PodInfo, Port, is_same_to_rules
from stowplan.columns.ports import PortIndex
from stowplan.columns.vocabulary import Vocabulary
from stowplan.objects.node import Node, Taint
from stowplan.objects.pod import Pod

Rows = slice | Ints
"""Rows: int64 row numbers, or a slice for all of them (columns are then views)."""


class TableError(ValueError):
    """A change that contradicts the table's state (an unknown node, a pod added twice)."""


class NodeTable:
    """Nodes of a cluster and their pods.

    Rows are dense: 0 .. n_nodes-1. When a node is removed, the last row takes its place. Readers
    with state per row follow `journal`, and `swaps` too if they keep pods: it has the rows where a
    pod was replaced by an equal version. Row numbers imply no order: `rank` does. Pods bound to an
    unknown node are kept aside and added with the node. `shape` increases with every change that is
    neither of a pod nor of an amount: nodes, their order, labels, taints, cordons, images and
    features.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.nodes: list[Node] = []
        self.pods: list[list[PodInfo]] = []
        self.journal = Journal()
        self.swaps = Journal()
        self.shape = 0
        self.resources: Vocabulary[str] = Vocabulary()
        self.taints: Incidence[Taint] = Incidence()
        self.features: Incidence[str] = Incidence()
        self.images = ImageIndex()
        self.ports = PortIndex()
        self._labels_of: list[Mapping[str, str]] = []
        self.offered = OfferedResources()
        self.labels = LabelColumns(self._labels_of)
        self.node_order = NodeOrder()
        self._row_of: dict[str, int] = {}
        self._home: dict[str, str] = {}
        self._places = PodPlaces()
        self._absent: dict[str, dict[str, PodInfo]] = {}
        self._watchers: list[PodWatcher] = []
        self._infos: dict[int, NodeInfo] = {}
        self.extras: dict[str, object] = {}
        self._allocatable: Ints = np.zeros((0, 0), dtype=np.int64)
        self._requested: Ints = np.zeros((0, 0), dtype=np.int64)
        self._nonzero: Ints = np.zeros((2, 0), dtype=np.int64)
        self._pod_count: Ints = np.zeros(0, dtype=np.int64)
        self._unschedulable: Bools = np.zeros(0, dtype=np.bool_)
        self._order: Ints = np.zeros(0, dtype=np.int64)
        self._rank: Ints = np.zeros(0, dtype=np.int64)
        self._order_is_current = True
        self._unrefreshed: dict[str, None] = {}

    # Reads: nodes and rows.

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.names)

    @property
    def all_rows(self) -> slice:
        """All rows, as a slice: columns indexed by it are views."""
        return slice(0, len(self.names))

    def row(self, name: str) -> int:
        """Row of a node, -1 when it does not exist."""
        return self._row_of.get(name, -1)

    def info(self, row: int) -> NodeInfo:
        """The node of a row with its pods, for scalar methods. Read-only: copy it to change it."""
        info = self._infos.get(row)
        if info is None:
            info = self._infos[row] = NodeInfo(
                self.nodes[row], self.pods[row], self.ports.of_row(row), self.images.of_row(row)
            )
        return info

    def infos_of(self, rows: Ints) -> list[NodeInfo]:
        """The nodes of rows, as `info`; their requests are read from the columns, not summed."""
        infos = [self.info(row) for row in rows.tolist()]
        names, sums = self.resources.values, self._requested[:, rows].T.tolist()
        for info, amounts in zip(infos, sums, strict=True):
            info.set_requested(dict(zip(names, amounts, strict=False)))
        return infos

    def infos(self) -> Iterator[NodeInfo]:
        """All nodes with their pods, in row order."""
        return (self.info(row) for row in range(self.n_nodes))

    def knows_pod(self, uid: str) -> bool:
        """True when the pod is bound or assumed, whether its node exists or not."""
        return uid in self._home

    def row_of_pod(self, uid: str) -> int:
        """Row of a pod, -1 when the pod or its node is unknown."""
        home = self._home.get(uid)
        return -1 if home is None else self._row_of.get(home, -1)

    def pod(self, uid: str) -> PodInfo | None:
        """A pod by uid; None while an overlay has removed it."""
        home = self._home.get(uid)
        if home is None:
            return None
        if home in self._row_of:
            return next((i for i in self.pods[self._row_of[home]] if i.uid == uid), None)
        return self._absent[home][uid]

    # Reads: columns. Each is a view over all rows; index it with rows.

    def allocatable(self, resource: str) -> Ints:
        """int64 (n_nodes,): allocatable amount of a resource, base units; 0 where absent."""
        return self._of_resource(self._allocatable, resource)

    def requested(self, resource: str) -> Ints:
        """int64 (n_nodes,): requests of the pods on each node, base units."""
        return self._of_resource(self._requested, resource)

    def nonzero_requested(self, resource: str) -> Ints:
        """int64 (n_nodes,): requests for cpu (milli) or memory (bytes), with defaults."""
        return self._nonzero[("cpu", "memory").index(resource), : self.n_nodes]

    @property
    def pod_count(self) -> Ints:
        """int64 (n_nodes,): number of pods."""
        return self._pod_count[: self.n_nodes]

    @property
    def pod_limit(self) -> Ints:
        """int64 (n_nodes,): maximum number of pods."""
        return self.allocatable("pods")

    @property
    def unschedulable(self) -> Bools:
        """bool (n_nodes,): cordoned nodes."""
        return self._unschedulable[: self.n_nodes]

    @property
    def order(self) -> Ints:
        """int64 (n_nodes,): rows in the snapshot's order at the last `refresh`.

        Newer nodes are last.
        """
        self._settle_order()
        return self._order

    @property
    def rank(self) -> Ints:
        """int64 (n_nodes,): position of each row in the snapshot's order."""
        self._settle_order()
        return self._rank

    def _of_resource(self, table: Ints, resource: str) -> Ints:
        item = self.resources.find(resource)
        # A replica shares its source's vocabulary, which may have grown since.
        if not 0 <= item < table.shape[0]:
            return np.zeros(self.n_nodes, dtype=np.int64)
        return table[item, : self.n_nodes]

    def _settle_order(self) -> None:
        if not self._order_is_current:
            self._order_is_current = True
            rows = numbers_of(self.node_order.names, self._row_of)
            rows = rows[rows >= 0]
            is_left = np.ones(self.n_nodes, dtype=np.bool_)
            is_left[rows] = False
            self._order = np.concatenate((rows, np.flatnonzero(is_left)))
            self._rank = np.empty(self.n_nodes, dtype=np.int64)
            self._rank[self._order] = np.arange(self._order.shape[0])

    def item(self, resource: str) -> int:
        """Index of the resource on the first axis of `amounts`, added if it has none."""
        return self._resource(resource)

    @property
    def amounts(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The arrays of the columns, with spare rows: allocatable and requested, int64
        (n_resources, n_rows_max); cpu and memory with defaults, int64 (2, n_rows_max); pods, int64
        (n_rows_max,). Callers that count pods in them call `enter`."""
        return self._allocatable, self._requested, self._nonzero, self._pod_count

    @property
    def marks(self) -> tuple[int, int]:
        """Positions in journal and swaps, for `rows_since`."""
        return self.journal.generation, self.swaps.generation

    def rows_since(self, marks: tuple[int, int]) -> list[int] | None:
        """Rows that changed since these marks, each once; None when they are too old."""
        touched, swapped = self.journal.since(marks[0]), self.swaps.since(marks[1])
        if touched is None or swapped is None:
            return None
        return list(dict.fromkeys(touched + swapped))

    # Updates: nodes.

    def add_node(self, node: Node) -> int:
        """Add a node and return its row. Raises TableError when the name is taken."""
        if node.name in self._row_of:
            raise TableError(f"node {node.name!r} is added twice; expected one node of a name")
        offered = allocatable_amounts(node)
        row = self.n_nodes
        self._grow(row + 1)
        self._row_of[node.name] = row
        self.names.append(node.name)
        self.nodes.append(node)
        self.pods.append([])
        self._labels_of.append(node.labels)
        self.offered.append()
        self._write_node(row, node, offered)
        self.node_order.add(node)
        self._order_is_current = False
        self.shape += 1
        for watcher in self._watchers:
            watcher.row_added(row)
        for info in self._absent.pop(node.name, {}).values():
            self._attach(row, info)
        self._touch(row)
        return row

    def update_node(self, node: Node) -> int:
        """Update a node by name and return its row. Raises TableError for an unknown name."""
        row = self._known_row(node.name)
        before = self.nodes[row]
        changed, reshaped = differences(before, node)
        if self.images.would_change(row):
            changed = reshaped = True
        if changed:
            offered = allocatable_amounts(node)
            self._labels_of[row] = node.labels
            self._write_node(row, node, offered)
        if reshaped:
            self.node_order.update(node)
            self._forget_unused()
            self.shape += 1
        self.nodes[row] = node
        self._touch(row)
        return row

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods are kept aside. Raises TableError for an unknown name."""
        row = self._known_row(name)
        leaving = list(self.pods[row])
        for info in leaving:
            self._detach(row, self._place_of(row, info.uid), info)
        if leaving:
            self._absent[name] = {info.uid: info for info in leaving}
        self.images.clear(row)
        self.ports.write(row, ())
        self.node_order.remove(name)
        self._order_is_current = False
        self.shape += 1
        del self._row_of[name]
        self._close_gap(row)
        self._forget_unused()

    def refresh(self) -> None:
        """Update what a snapshot takes over at the start of an attempt: node order, image
        counts."""
        for name in self._unrefreshed if self.images.states else ():
            row = self._row_of.get(name)
            if row is not None and self.images.refresh(row):
                self._moved(row)
                self.shape += 1
        self._unrefreshed.clear()
        if self.node_order.refresh():
            self._order_is_current = False
            self.shape += 1

    # Updates: pods.

    def add_pod(self, pod: Pod | PodInfo, node_name: str = "") -> None:
        """Add a pod bound to `spec.nodeName`, or assumed on `node_name`.

        Raises TableError when it is known.
        """
        info = pod if isinstance(pod, PodInfo) else PodInfo.of(pod)
        uid, home = info.uid, node_name or info.pod.node_name
        if uid in self._home:
            raise TableError(f"pod {uid} is added twice; it is already on {self._home[uid]!r}")
        self._home[uid] = home
        row = self._row_of.get(home)
        if row is None:
            self._absent.setdefault(home, {})[uid] = info
            return
        self._attach(row, info)
        self._touch(row)

    def enter(self, placed: Sequence[PodInfo], rows: list[int]) -> None:
        """Add pods as assumed that are already counted in `amounts`, each on its row.

        Same as a refresh before each of them in which no row changed. They must be unknown and use
        no host ports. Raises TableError for a known pod.
        """
        home, names, pods, infos = self._home, self.names, self.pods, self._infos
        unrefreshed = self._unrefreshed
        for info, row in zip(placed, rows, strict=True):
            pod, name = info.pod, names[row]
            uid = pod.metadata.uid or pod.key
            if uid in home:
                raise TableError(f"pod {uid} is added twice; it is already on {home[uid]!r}")
            home[uid] = name
            pods[row].append(info)
            infos.pop(row, None)
        for watcher in self._watchers:
            watcher.pods_added(placed, rows)
        if rows:
            # For all but the last of them, the others' rows would have been refreshed.
            unrefreshed.clear()
            unrefreshed[names[rows[-1]]] = None
        self.journal.touch_all(rows)
        self.journal.trim(self.n_nodes)

    def remove_pod(self, uid: str) -> PodInfo:
        """Remove a pod from its node and return it. Raises TableError when it is unknown."""
        home = self._home.pop(uid, None)
        if home is None:
            raise TableError(f"pod {uid} is not on any node")
        row = self._row_of.get(home)
        if row is None:
            info = self._absent[home].pop(uid)
            if not self._absent[home]:
                del self._absent[home]
            return info
        place = self._place_of(row, uid)
        info = self.pods[row][place]
        self._detach(row, place, info)
        self._touch(row)
        return info

    def remove_pods(self, uids: Sequence[str]) -> None:
        """Remove pods of nodes that exist from these, one after the other."""
        rows = [self._row_of[self._home.pop(uid)] for uid in uids]
        infos: list[PodInfo] = []
        # Pods of a template that leave a row are counted together.
        alike: dict[tuple[int, int], list[PodInfo]] = {}
        for uid, row in zip(uids, rows, strict=True):
            place = self._place_of(row, uid)
            info = self.pods[row][place]
            self._take_out(row, place, info)
            infos.append(info)
            alike.setdefault((row, id(info.footprint)), []).append(info)
        for (row, _), same in alike.items():
            self._count(row, same[0], -len(same))
        for watcher in self._watchers:
            for info, row in zip(infos, rows, strict=True):
                watcher.pod_removed(row, info)
        for row in dict.fromkeys(rows):
            self._unrefreshed[self.names[row]] = None
            self._infos.pop(row, None)
        self.journal.touch_all(rows)
        self.journal.trim(self.n_nodes)

    def update_pod(self, pod: Pod) -> None:
        """Update a pod: removed and added, as in the original.

        Where nothing changed that any reader counts, the counts are not touched.
        """
        uid = pod.uid
        home = self._home.get(uid)
        row = self._row_of.get(home, -1) if home == pod.spec.node_name else -1
        if row >= 0:
            pods = self.pods[row]
            index = self._place_of(row, uid)
            info = pods[index]
            if is_same_to_rules(info.pod, pod):
                # It moves to the end of the list, and the last pod to its position.
                pods[index] = pods[-1]
                self._places.moved(row, pods[-1].uid, index)
                pods[-1] = fresh = PodInfo(pod, info.footprint)
                for watcher in self._watchers:
                    if not watcher.counts_alike:
                        watcher.pod_replaced(row, info, fresh)
                self._infos.pop(row, None)
                self.swaps.touch(row)
                self.swaps.trim(self.n_nodes)
                self._unrefreshed[self.names[row]] = None
                if not pod.spec.__dict__:
                    # Data computed from the spec also holds for a spec that differs by the node
                    # only.
                    pod.spec.__dict__.update(info.pod.spec.__dict__)
                return
        changed = PodInfo.of(pod)
        self.remove_pod(uid)
        self.add_pod(changed)

    def watch(self, watcher: PodWatcher) -> None:
        """Report every row and pod to `watcher`, the existing ones first."""
        for row in range(self.n_nodes):
            watcher.row_added(row)
            for info in self.pods[row]:
                watcher.pod_added(row, info)
        self.watch_changes(watcher)

    def watch_changes(self, watcher: PodWatcher) -> None:
        """Report changes of rows and pods to `watcher`, which has read the existing ones."""
        self._watchers.append(watcher)

    # Dry runs: used by Overlay only, which undoes it.

    def place(self, row: int, info: PodInfo) -> frozenset[Port]:
        """Add a pod temporarily; returns the ports that it started to use."""
        fresh = frozenset(info.footprint.ports) - self.ports.of_row(row)
        self._attach(row, info)
        self._moved(row)
        return fresh

    def unplace(self, row: int, fresh: frozenset[Port]) -> None:
        """Undo the latest `place` on a row."""
        info = self.pods[row].pop()
        self._uncount(row, info)
        self.ports.remove(row, fresh)
        self._moved(row)

    def take(self, row: int, index: int) -> frozenset[Port]:
        """Remove the pod at `index` temporarily; returns the ports that became free."""
        before = self.ports.of_row(row)
        self._detach(row, index, self.pods[row][index])
        self._moved(row)
        return before - self.ports.of_row(row)

    def untake(self, row: int, index: int, info: PodInfo, freed: frozenset[Port]) -> None:
        """Undo the latest `take` on a row: the pod returns to its position."""
        pods = self.pods[row]
        if index == len(pods):
            pods.append(info)
        else:
            pods.append(pods[index])
            pods[index] = info
        self._count(row, info, 1)
        self.ports.add(row, freed)
        for watcher in self._watchers:
            watcher.pod_added(row, info)
        self._moved(row)

    # Internals.

    def _known_row(self, name: str) -> int:
        row = self._row_of.get(name)
        if row is None:
            raise TableError(f"node {name!r} is not known")
        return row

    def _touch(self, row: int) -> None:
        self._unrefreshed[self.names[row]] = None
        self._moved(row)

    def _moved(self, row: int) -> None:
        """Mark a row as holding another object, though the node is unchanged."""
        self._infos.pop(row, None)
        self.journal.touch(row)
        self.journal.trim(self.n_nodes)

    def _grow(self, n_rows: int) -> None:
        n_resources = len(self.resources)
        self._allocatable = grow_columns(self._allocatable, n_resources, n_rows)
        self._requested = grow_columns(self._requested, n_resources, n_rows)
        self._nonzero = grow(self._nonzero, (2, n_rows))
        self._pod_count = grow(self._pod_count, (n_rows,))
        self._unschedulable = grow(self._unschedulable, (n_rows,))

    def _resource(self, name: str) -> int:
        item = self.resources.add(name)
        if item >= self._requested.shape[0]:
            self._grow(self.n_nodes)
        return item

    def _write_node(self, row: int, node: Node, offered: Mapping[str, int]) -> None:
        items = {self._resource(name): amount for name, amount in offered.items()}
        # Elements that are 0 already are left alone; see `grow_columns`.
        for item in {*self.offered.items[row], *items}:
            self._allocatable[item, row] = items.get(item, 0)
        if self.offered.write(row, tuple(items)):
            self.shape += 1
        self._unschedulable[row] = node.spec.unschedulable
        self.taints.write(row, node.taints)
        self.features.write(row, node.status.declared_features)
        self.images.write(row, node)
        self.labels.write(row)

    def _forget_unused(self) -> None:
        """Drop values of removed nodes periodically, so that they do not pile up. Readers of item
        numbers follow `shape`."""
        self.labels.forget_unused()
        self.taints.forget_unused(self.n_nodes)
        self.features.forget_unused(self.n_nodes)

    def _attach(self, row: int, info: PodInfo) -> None:
        self.pods[row].append(info)
        self._count(row, info, 1)
        self.ports.add(row, info.footprint.ports)
        for watcher in self._watchers:
            watcher.pod_added(row, info)

    def _detach(self, row: int, place: int, info: PodInfo) -> None:
        self._take_out(row, place, info)
        self._uncount(row, info)

    def _take_out(self, row: int, place: int, info: PodInfo) -> None:
        """Remove a pod from the list of its row, and its ports; the last pod takes its place."""
        pods = self.pods[row]
        last = pods.pop()
        if last is not info:
            pods[place] = last
            self._places.moved(row, last.uid, place)
        if info.footprint.ports:
            self.ports.remove(row, info.footprint.ports)

    def _place_of(self, row: int, uid: str) -> int:
        place = self._places.find(row, self.pods[row], uid)
        if place < 0:
            raise TableError(f"pod {uid} is not on the node that the table has for it")
        return place

    def _uncount(self, row: int, info: PodInfo) -> None:
        self._count(row, info, -1)
        for watcher in self._watchers:
            watcher.pod_removed(row, info)

    def _count(self, row: int, info: PodInfo, times: int) -> None:
        """Count a pod so many times; it is counted less where that is below 0."""
        footprint = info.footprint
        for name, amount in footprint.requested.items():
            item = self._resource(name)
            total = wrapped(int(self._requested[item, row]) + times * amount)
            self._requested[item, row] = total
            if total < 0 and self.offered.is_needed:
                self.offered.is_needed = False
                self.shape += 1
        for item in (0, 1):
            sum_now = int(self._nonzero[item, row]) + times * footprint.nonzero[item]
            self._nonzero[item, row] = wrapped(sum_now)
        self._pod_count[row] += times

    def _close_gap(self, row: int) -> None:
        """Move the last row to `row`, which is empty."""
        last = self.n_nodes - 1
        for table in (self._allocatable, self._requested):
            move_row(table, last, row)
        if row != last:
            self.offered.write(row, self.offered.items[last])
            self._nonzero[:, row] = self._nonzero[:, last]
            self._pod_count[row] = self._pod_count[last]
            self._unschedulable[row] = self._unschedulable[last]
            self.taints.copy_row(self.taints, last, row)
            self.features.copy_row(self.features, last, row)
            self.images.move(last, row)
            ports = self.ports.of_row(last)
            self.ports.write(last, ())
            self.ports.write(row, ports)
            self.names[row] = self.names[last]
            self.nodes[row] = self.nodes[last]
            self.pods[row] = self.pods[last]
            self._labels_of[row] = self._labels_of[last]
            self._row_of[self.names[row]] = row
            self.labels.write(row)
            for watcher in self._watchers:
                watcher.row_moved(last, row)
        self.names.pop()
        self.nodes.pop()
        self.pods.pop()
        self._labels_of.pop()
        self.offered.pop()
        self._nonzero[:, last], self._pod_count[last] = 0, 0
        for watcher in self._watchers:
            watcher.row_dropped(last)
        self._infos.pop(last, None)
        self._moved(row)


def table_of(nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> NodeTable:
    """A table of these nodes, in order, and of the bound pods, refreshed."""
    table = NodeTable()
    for node in nodes:
        table.add_node(node)
    for pod in pods:
        table.add_pod(pod)
    table.refresh()
    return table
