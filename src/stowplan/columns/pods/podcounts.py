"""Number of pods per row that match a selection, updated incrementally for selections in use.

Pods that are equal to every selection (namespace, labels, whether they are being deleted) form a
kind. A kind knows its rows, so a new selection costs the kinds that it may match, not the pods; and
a kind knows the selections in use that match it, so an added or removed pod costs those. Both are
found through single labels: most selections require a value of some key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import CAPACITY_MIN, Ints, grow
from stowplan.columns.labels import ABSENT
from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.columns.pods.table_watcher import TableWatcher
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import SelectorRequirement, requirement_admits

Pair = tuple[str, str]
T = TypeVar("T")

TALLIES_MAX = 512
"""Number of counted selections; the least recently used is dropped first."""

FEW_ROWS = 8
"""Fewer rows are counted one by one, which takes less than an array of them."""


def admits(requirements: Iterable[SelectorRequirement], labels: Mapping[str, str]) -> bool:
    """True when the labels meet every requirement; no requirements match all labels."""
    return all(requirement_admits(r, labels.get(r.key)) for r in requirements)


class PodSelection(msgspec.Struct, frozen=True, cache_hash=True):
    """Which pods are counted.

    requirements: on the labels, valid; all must hold. namespaces: None for all. terminating: pods
    that are being deleted count too.
    """

    requirements: tuple[SelectorRequirement, ...]
    namespaces: frozenset[str] | None = None
    terminating: bool = True

    def takes(self, pod: Pod) -> bool:
        """True for a pod that is counted."""
        return (
            (self.namespaces is None or pod.namespace in self.namespaces)
            and (self.terminating or pod.metadata.deletion_timestamp is None)
            and admits(self.requirements, pod.labels)
        )

    def __and__(self, other: PodSelection) -> PodSelection:
        """Pods that both select."""
        namespaces = self.namespaces
        if namespaces is None:
            namespaces = other.namespaces
        elif other.namespaces is not None:
            namespaces &= other.namespaces
        return PodSelection(
            self.requirements + other.requirements,
            namespaces,
            self.terminating and other.terminating,
        )


def anchor(requirements: Iterable[SelectorRequirement]) -> tuple[Pair, ...]:
    """Labels one of which every pod that meets the requirements has; empty when there are none."""
    for requirement in requirements:
        if requirement.operator == "In":
            return tuple((requirement.key, value) for value in requirement.values)
    return ()


class LabelIndex(Generic[T]):
    """Index by single labels. Values are compared by identity or must be hashable."""

    def __init__(self) -> None:
        self._under: dict[Pair, dict[T, None]] = {}
        self._unanchored: dict[T, None] = {}

    def add(self, thing: T, labels: Iterable[Pair]) -> None:
        """Add a value under each of `labels`; without labels every search returns it."""
        pairs = tuple(labels)
        if not pairs:
            self._unanchored[thing] = None
        for pair in pairs:
            self._under.setdefault(pair, {})[thing] = None

    def drop(self, thing: T, labels: Iterable[Pair]) -> None:
        """Remove a value that was added under these labels."""
        pairs = tuple(labels)
        if not pairs:
            del self._unanchored[thing]
        for pair in pairs:
            things = self._under[pair]
            del things[thing]
            if not things:
                del self._under[pair]

    def found_by(self, labels: Iterable[Pair]) -> Iterator[T]:
        """Values under one of `labels`, and those that every search returns."""
        if self._under:
            for pair in labels:
                yield from self._under.get(pair, ())
        yield from self._unanchored


class RowTally:
    """A number per row that grows with the table."""

    __slots__ = ("_counts",)

    def __init__(self, n_rows: int) -> None:
        self._counts: Ints = np.zeros(max(n_rows, CAPACITY_MIN), dtype=np.int64)

    def count(self, row: int, by: int) -> None:
        """Add to one row's number."""
        self._counts[row] += by

    def count_all(self, rows: Sequence[int]) -> None:
        """Add 1 to the number of each of these rows, so often as it is among them."""
        if len(rows) < FEW_ROWS:
            for row in rows:
                self._counts[row] += 1
        else:
            np.add.at(self._counts, np.array(rows, dtype=np.int64), 1)

    def add(self, numbers: Mapping[int, int]) -> None:
        """Add to several rows' numbers."""
        rows = np.fromiter(numbers.keys(), dtype=np.int64, count=len(numbers))
        self._counts[rows] += np.fromiter(numbers.values(), dtype=np.int64, count=len(numbers))

    def make_room(self, row: int) -> None:
        """Grow to include `row`."""
        if row >= self._counts.shape[0]:
            self._counts = grow(self._counts, (row + 1,))

    def move(self, source: int, target: int) -> None:
        """Move the number of `source` to `target`."""
        self._counts[target] = self._counts[source]
        self._counts[source] = 0

    def column(self, n_nodes: int) -> Ints:
        """int64 (n_nodes,): a view, read-only and valid until the next change."""
        return self._counts[:n_nodes]


def count_rows(numbers: dict[int, int], rows: Iterable[int]) -> None:
    """Add 1 to the number of each of these rows, so often as it is among them."""
    for row in rows:
        numbers[row] = numbers.get(row, 0) + 1


KindKey = tuple[str, tuple[Pair, ...], bool]


def kind_key(pod: Pod) -> KindKey:
    """Key that identifies the kind of a pod.

    Different label orders give different kinds that could be one, which costs little: pods of one
    template have one order.
    """
    meta = pod.metadata
    return pod.namespace, tuple(meta.labels.items()), meta.deletion_timestamp is not None


class PodKind:
    """Pods that are equal to every selection, and their rows.

    labels: of each of them. rows: row -> number of pods. tallies: of the selections in use that
    match the kind.
    """

    __slots__ = ("labels", "pod", "rows", "tallies")

    def __init__(self, pod: Pod, labels: tuple[Pair, ...]) -> None:
        """pod: any pod of the kind."""
        self.pod = pod
        self.labels = labels
        self.rows: dict[int, int] = {}
        self.tallies: tuple[RowTally, ...] = ()


class MatchingPods(TableWatcher):
    """Number of matching pods per row and selection."""

    counts_alike = True

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._kinds: dict[KindKey, PodKind] = {}
        self._kinds_by_label: LabelIndex[PodKind] = LabelIndex()
        self._tallies: dict[PodSelection, RowTally] = {}
        self._selections_by_label: LabelIndex[PodSelection] = LabelIndex()

    def counts(self, selection: PodSelection) -> Ints:
        """int64 (n_nodes,): pods that match `selection` on each row; a view, read-only."""
        tally = self._tallies.pop(selection, None)
        if tally is None:
            if len(self._tallies) >= TALLIES_MAX:
                self._forget(next(iter(self._tallies)))
            tally = self._start(selection)
        self._tallies[selection] = tally
        return tally.column(self._table.n_nodes)

    def begin(self) -> None:
        """Count the pods of the table and follow its changes."""
        # Pods of one template share their labels.
        known: dict[tuple[str, int, bool], PodKind] = {}
        labels: object = None
        key: tuple[str, int, bool] = "", 0, False
        rows: dict[int, int] = {}
        for row, infos in enumerate(self._table.pods):
            for info in infos:
                meta = info.pod.metadata
                is_leaving = meta.deletion_timestamp is not None
                if meta.labels is not labels or meta.namespace != key[0] or is_leaving != key[2]:
                    labels, key = meta.labels, (meta.namespace, id(meta.labels), is_leaving)
                    kind = known.get(key)
                    if kind is None:
                        kind = known[key] = self._kind(info.pod)
                    rows = kind.rows
                rows[row] = rows.get(row, 0) + 1
        self._table.watch_changes(self)

    # Table events.

    def pod_added(self, row: int, info: PodInfo) -> None:
        kind = self._kind(info.pod)
        kind.rows[row] = kind.rows.get(row, 0) + 1
        for tally in kind.tallies:
            tally.count(row, 1)

    def pods_added(self, placed: Sequence[PodInfo], rows: Sequence[int]) -> None:
        # Pods of one template share their labels.
        known: dict[tuple[str, int, bool], list[int]] = {}
        found: list[tuple[Pod, list[int]]] = []
        labels: object = None
        key: tuple[str, int, bool] = "", 0, False
        for info, row in zip(placed, rows, strict=True):
            meta = info.pod.metadata
            is_leaving = meta.deletion_timestamp is not None
            if meta.labels is not labels or key[0] != meta.namespace or key[2] is not is_leaving:
                labels, key = meta.labels, (meta.namespace, id(meta.labels), is_leaving)
                if key not in known:
                    known[key] = []
                    found.append((info.pod, known[key]))
                of_kind = known[key]
            of_kind.append(row)
        for pod, of_kind in found:
            kind = self._kind(pod)
            count_rows(kind.rows, of_kind)
            for tally in kind.tallies:
                tally.count_all(of_kind)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        key = kind_key(info.pod)
        kind = self._kinds[key]
        kind.rows[row] -= 1
        for tally in kind.tallies:
            tally.count(row, -1)
        if not kind.rows[row]:
            del kind.rows[row]
        if not kind.rows:
            del self._kinds[key]
            self._kinds_by_label.drop(kind, kind.labels)

    def row_added(self, row: int) -> None:
        for tally in self._tallies.values():
            tally.make_room(row)

    def row_moved(self, source: int, target: int) -> None:
        for tally in self._tallies.values():
            tally.move(source, target)
        for kind in {self._kinds[kind_key(info.pod)] for info in self._table.pods[target]}:
            kind.rows[target] = kind.rows.pop(source)

    # Internals.

    def _kind(self, pod: Pod) -> PodKind:
        key = kind_key(pod)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = PodKind(pod, key[1])
            self._kinds_by_label.add(kind, kind.labels)
            kind.tallies = tuple(
                self._tallies[selection]
                for selection in self._selections_by_label.found_by(kind.labels)
                if selection.takes(pod)
            )
        return kind

    def _start(self, selection: PodSelection) -> RowTally:
        tally = RowTally(self._table.n_nodes)
        for kind in self._admitted(selection):
            kind.tallies += (tally,)
            tally.add(kind.rows)
        self._selections_by_label.add(selection, anchor(selection.requirements))
        return tally

    def _forget(self, selection: PodSelection) -> None:
        tally = self._tallies.pop(selection)
        self._selections_by_label.drop(selection, anchor(selection.requirements))
        for kind in self._admitted(selection):
            kind.tallies = tuple(one for one in kind.tallies if one is not tally)

    def _admitted(self, selection: PodSelection) -> Iterator[PodKind]:
        pairs = anchor(selection.requirements)
        kinds = self._kinds_by_label.found_by(pairs) if pairs else self._kinds.values()
        return (kind for kind in kinds if selection.takes(kind.pod))


def sums_by_value(codes: NDArray[np.int32], n_values: int, counts: Ints) -> Ints:
    """int64 (n_values + 1,): counts of rows summed by the value of a label.

    codes: int32 (n_rows,), of a label column. counts: int64 (n_rows,). Rows without the label are
    left out; the last entry, which the code ABSENT selects, is 0.
    """
    rows = np.flatnonzero(counts)
    chosen, amounts = codes[rows], counts[rows]
    if chosen.size and chosen.min() == ABSENT:
        present = chosen != ABSENT
        chosen, amounts = chosen[present], amounts[present]
    sums = np.zeros(n_values + 1, dtype=np.int64)
    if chosen.size:
        # Sums of weights are doubles, exact for integers up to 2**53.
        sums[:-1] = np.bincount(chosen, weights=amounts, minlength=n_values)
    return sums
