"""From which nodes a volume is accessible or storage can be provisioned, for one node and all rows.

Storage restricts nodes in three ways: a volume by node affinity, a storage class by allowed
topologies, a capacity by a label selector. All three are the same: one of several terms must hold,
each a list of requirements on labels.

Volumes of one class are many and usually each is accessible from one node or one zone. So a ranking
does not evaluate each volume on each row: requirements of the form "label is one of these values"
are inverted into a table from the label's value to the best volumes there.

Source: Kubernetes v1.36: component-helpers storage/volume CheckNodeAffinity, apis/core/v1/helper
MatchTopologySelectorTerms, plugins/volumebinding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.vocabulary import Vocabulary
from stowplan.framework import NodeTable, Rows
from stowplan.objects.selectors import (
    LabelSelector,
    LabelSelectorRequirement,
    SelectorError,
    SelectorRequirement,
    requirement_admits,
)
from stowplan.objects.storage import (
    CSIStorageCapacity,
    PersistentVolume,
    StorageClass,
    TopologySelectorTerm,
)
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.node_affinity.node_selector import label_column

TopologyRequirements = tuple[SelectorRequirement, ...]
AccessibleTopology = tuple[TopologyRequirements, ...] | None
"""Terms of which one must hold; None: every node, an empty tuple: none. All terms are valid."""

ALL_NODES: AccessibleTopology = None
NO_NODES: AccessibleTopology = ()

NO_RANK = 2**62
"""The rank for "none": higher than every other."""


def volume_topology(volume: PersistentVolume) -> AccessibleTopology:
    """The nodes that a volume's node affinity allows.

    Requirements on fields do not count here: the original reads the node's labels only.
    """
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return ALL_NODES
    # A list, since this is read for every version of every volume.
    return tuple(
        [
            term.match_expressions
            for term in affinity.required.node_selector_terms
            if not term.is_empty and not term.faults
        ]
    )


def storage_class_topology(storage_class: StorageClass) -> AccessibleTopology:
    """The nodes for which a class provisions: its allowed topologies."""
    if not storage_class.allowed_topologies:
        return ALL_NODES
    terms = (_topology_term(term) for term in storage_class.allowed_topologies)
    return tuple(term for term in terms if term)


def _topology_term(term: TopologySelectorTerm) -> TopologyRequirements:
    """The requirements of an allowed topology; none for a malformed one, which allows nothing."""
    conditions = (
        LabelSelectorRequirement(r.key, "In", r.values) for r in term.match_label_expressions
    )
    return _parsed_requirements(LabelSelector(match_expressions=tuple(conditions))) or ()


def capacity_topology(capacity: CSIStorageCapacity) -> AccessibleTopology:
    """The nodes of a storage capacity; none for a malformed selector."""
    if capacity.node_topology is None:
        return NO_NODES
    term = _parsed_requirements(capacity.node_topology)
    return NO_NODES if term is None else (term,)


def _parsed_requirements(selector: LabelSelector) -> TopologyRequirements | None:
    try:
        return selector.requirements
    except SelectorError:
        return None


def topology_admits(reach: AccessibleTopology, labels: Mapping[str, str]) -> bool:
    """True when the topology includes a node with these labels."""
    if reach is None:
        return True
    return any(all(requirement_admits(r, labels.get(r.key)) for r in term) for term in reach)


def topology_column(reach: AccessibleTopology, nodes: NodeTable, rows: Rows) -> Bools:
    """bool (n_rows,): `topology_admits` of each row."""
    n_rows = n_rows_of(rows)
    if reach is None:
        return np.ones(n_rows, dtype=np.bool_)
    reached = np.zeros(n_rows, dtype=np.bool_)
    for term in reach:
        holds = np.ones(n_rows, dtype=np.bool_)
        for requirement in term:
            holds &= label_column(requirement, nodes, rows)
        reached |= holds
    return reached


def rows_within(reach: AccessibleTopology, nodes: NodeTable) -> Ints:
    """int64, ascending: the rows that the topology includes."""
    return np.flatnonzero(topology_column(reach, nodes, nodes.all_rows))


def rows_of_any(reaches: Iterable[AccessibleTopology], nodes: NodeTable) -> Bools:
    """bool (n_nodes,): rows that one of the topologies includes; those of one label with some
    values are asked together."""
    pinned: dict[str, list[str]] = {}
    others: dict[AccessibleTopology, None] = {}
    for reach in reaches:
        pin = single_in_requirement(reach)
        if pin is None:
            others[reach] = None
        else:
            pinned.setdefault(pin.key, []).extend(pin.values)
    reached = np.zeros(nodes.n_nodes, dtype=np.bool_)
    for key, values in pinned.items():
        reached |= nodes.labels.column(key).where_in(tuple(values), nodes.all_rows)
    for reach in others:
        reached |= topology_column(reach, nodes, nodes.all_rows)
    return reached


class RowsByLabel:
    """The rows of a node table by the value of a label, sorted once for a table and its shape: most
    volumes are accessible from one node."""

    def __init__(self) -> None:
        self._made_for: tuple[NodeTable | None, int] = None, -1
        self._by_key: dict[str, tuple[Vocabulary[str], Ints, list[int]]] = {}

    def within(self, reach: AccessibleTopology, nodes: NodeTable) -> Ints:
        """See `rows_within`; read only."""
        pin = single_in_requirement(reach)
        if pin is None or len(pin.values) != 1:
            return rows_within(reach, nodes)
        if self._made_for[0] is not nodes or self._made_for[1] != nodes.shape:
            self._made_for = nodes, nodes.shape
            self._by_key.clear()
        known = self._by_key.get(pin.key)
        if known is None:
            known = self._by_key[pin.key] = _sorted_rows(pin.key, nodes)
        vocabulary, rows, ends = known
        item = vocabulary.find(pin.values[0])
        return rows[ends[item] : ends[item + 1]] if 0 <= item < len(ends) - 1 else rows[:0]


def _sorted_rows(key: str, nodes: NodeTable) -> tuple[Vocabulary[str], Ints, list[int]]:
    """The values of a label, the rows with one by value and ascending, and where those of each
    value begin, and the last ends."""
    column = nodes.labels.column(key)
    codes = column.codes[: nodes.n_nodes]
    rows = np.argsort(codes, kind="stable")
    begins = np.searchsorted(codes[rows], np.arange(len(column.vocabulary) + 1))
    return column.vocabulary, rows, begins.tolist()


class TopologyRanking:
    """Ranked items of which each node gets the first that is accessible from it."""

    def __init__(self, reaches: Sequence[AccessibleTopology]) -> None:
        """reaches: the topology of each item, the best first; its index is its rank."""
        self._pinned: dict[str, dict[str, list[int]]] = {}
        self._others: dict[AccessibleTopology, list[int]] = {}
        for rank, reach in enumerate(reaches):
            pin = single_in_requirement(reach)
            if pin is None:
                self._others.setdefault(reach, []).append(rank)
                continue
            by_value = self._pinned.setdefault(pin.key, {})
            for value in dict.fromkeys(pin.values):
                by_value.setdefault(value, []).append(rank)

    def first(self, nodes: NodeTable, rows: Rows, n_ranks: int) -> Ints:
        """int64 (n_rows, n_ranks): the lowest ranks accessible from a row, ascending, then NONE."""
        found = [np.full((n_rows_of(rows), n_ranks), NO_RANK, dtype=np.int64)]
        for key, by_value in self._pinned.items():
            column = nodes.labels.column(key)
            table = np.full((len(column.vocabulary) + 1, n_ranks), NO_RANK, dtype=np.int64)
            for value, ranks in by_value.items():
                item = column.vocabulary.find(value)
                if item >= 0:
                    table[item, : len(ranks)] = ranks[:n_ranks]
            found.append(table[column.codes[rows]])
        for reach, ranks in self._others.items():
            best = np.full(n_ranks, NO_RANK, dtype=np.int64)
            best[: len(ranks)] = ranks[:n_ranks]
            found.append(np.where(topology_column(reach, nodes, rows)[:, None], best, NO_RANK))
        if len(found) == 2:
            return found[1]
        return np.sort(np.concatenate(found, axis=1), axis=1)[:, :n_ranks]


def single_in_requirement(reach: AccessibleTopology) -> SelectorRequirement | None:
    """The only requirement of a topology that is a label with one of some values."""
    if reach is None or len(reach) != 1 or len(reach[0]) != 1:
        return None
    requirement = reach[0][0]
    return requirement if requirement.operator == "In" else None
