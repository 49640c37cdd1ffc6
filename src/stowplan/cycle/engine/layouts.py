"""Layouts: rows grouped by topology domain, in the kernels' format."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.columns.engine import arrays as at

GROUPS_MAX = 1 << 14
"""With more groups than this a pod is decided by the walk over all rows."""


class Layout:
    """One grouping of the rows.

    first, size: of each group's tree. value: per key and group. group, leaf: of each row. row: of
    each leaf. width: length of a tree.
    """

    def __init__(self, nodes: NodeTable, keys: tuple[str, ...]) -> None:
        n_nodes, order = nodes.n_nodes, nodes.order
        codes = np.zeros((max(len(keys), 1), n_nodes), dtype=np.int32)
        for slot, key in enumerate(keys):
            codes[slot] = nodes.labels.column(key).codes[:n_nodes]
        distinct, groups = np.unique(codes, axis=1, return_inverse=True)
        groups = groups.reshape(-1)
        self.keys = keys
        self.n_groups = int(distinct.shape[1])
        n_rows = np.bincount(groups, minlength=self.n_groups)
        self.size = np.ones(self.n_groups, dtype=np.int64)
        while (self.size < n_rows).any():
            self.size[self.size < n_rows] *= 2
        self.first = np.zeros(self.n_groups, dtype=np.int64)
        self.first[1:] = np.cumsum(2 * self.size)[:-1]
        self.width = int(2 * self.size.sum())
        self.value = np.full((at.KEYS_MAX, self.n_groups), -1, dtype=np.int32)
        self.value[: len(keys)] = distinct[: len(keys)]
        self.group = groups.astype(np.int32)
        # Within a group, leaves are in the snapshot's order.
        ranked = order[np.argsort(groups[order], kind="stable")]
        starts = np.cumsum(n_rows) - n_rows
        within = np.arange(n_nodes) - np.repeat(starts, n_rows)
        leaves = self.first[groups[ranked]] + self.size[groups[ranked]] + within
        self.leaf = np.zeros(n_nodes, dtype=np.int32)
        self.leaf[ranked] = leaves
        self.row = np.full(self.width, -1, dtype=np.int32)
        self.row[leaves] = ranked


Stacked = tuple[at.Ints, at.Codes, at.Codes, at.Codes]


def stacked(layouts: list[Layout], n_nodes: int) -> Stacked:
    """The layouts stacked for the kernels: groups, values, places, rows_of."""
    n_groups = max((one.n_groups for one in layouts), default=1)
    width = max((one.width for one in layouts), default=2)
    groups = np.zeros((len(layouts), 2, n_groups), dtype=np.int64)
    values = np.full((len(layouts), at.KEYS_MAX, n_groups), -1, dtype=np.int32)
    places = np.zeros((len(layouts), 2, n_nodes), dtype=np.int32)
    rows_of = np.full((len(layouts), width), -1, dtype=np.int32)
    for i, one in enumerate(layouts):
        groups[i, at.FIRST, : one.n_groups] = one.first
        groups[i, at.SIZE, : one.n_groups] = one.size
        values[i, :, : one.n_groups] = one.value
        places[i, at.GROUP], places[i, at.LEAF] = one.group, one.leaf
        rows_of[i, : one.width] = one.row
    return groups, values, places, rows_of


def is_host_like(codes: NDArray[np.int32], n_values: int) -> bool:
    """True if every label value is on at most one row, so that domains are rows."""
    present = codes[codes >= 0]
    return present.size == 0 or int(np.bincount(present, minlength=n_values).max()) <= 1
