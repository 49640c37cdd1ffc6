"""Layouts: rows grouped by topology domain, in the kernels' format."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.columns.engine import arrays as at

GROUPS_MAX = 1 << 14
"""With more groups than this a pod is decided by the walk over all rows, unless they are rated by
blocks."""

BLOCK_ROWS, BLOCK_NODES = 64, 2048
"""Groups of a block in a cluster of up to so many nodes; see `block_rows`."""

NO_SLOT = -1


class Layout:
    """One grouping of the rows.

    first, size: of each group's tree. value: per key and group. group, leaf: of each row. row: of
    each leaf. width: length of a tree. inner: slot of a key of which every row has its own value,
    NO_SLOT if there is none. block_first, block_end: groups of each block, of rows that differ only
    in that value. block: of each row.
    """

    def __init__(self, nodes: NodeTable, keys: tuple[str, ...]) -> None:
        n_nodes, order = nodes.n_nodes, nodes.order
        codes = np.zeros((max(len(keys), 1), n_nodes), dtype=np.int32)
        for slot, key in enumerate(keys):
            codes[slot] = nodes.labels.column(key).codes[:n_nodes]
        self.inner = _row_slot(codes[: len(keys)])
        # The key of single rows comes last, so that groups that share all others are neighbours.
        slots = sorted(range(codes.shape[0]), key=lambda slot: slot == self.inner)
        distinct, groups = _distinct(codes[slots])
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
        if keys:
            self.value[slots] = distinct
        self.group = groups.astype(np.int32)
        self._divide(distinct)
        # Within a group, leaves are in the snapshot's order.
        ranked = order[np.argsort(groups[order], kind="stable")]
        starts = np.cumsum(n_rows) - n_rows
        within = np.arange(n_nodes) - np.repeat(starts, n_rows)
        leaves = self.first[groups[ranked]] + self.size[groups[ranked]] + within
        self.leaf = np.zeros(n_nodes, dtype=np.int32)
        self.leaf[ranked] = leaves
        self.row = np.full(self.width, -1, dtype=np.int32)
        self.row[leaves] = ranked

    def _divide(self, distinct: at.Codes) -> None:
        """Divide the groups into blocks. distinct: the values of each group, those of single rows
        last."""
        self.block_first = self.block_end = np.zeros(0, dtype=np.int64)
        self.block = np.zeros(self.group.shape[0], dtype=np.int32)
        if self.inner == NO_SLOT:
            return
        groups = np.arange(self.n_groups)
        begins = np.ones(self.n_groups, dtype=np.bool_)
        begins[1:] = (distinct[:-1, 1:] != distinct[:-1, :-1]).any(axis=0)
        starts = np.maximum.accumulate(np.where(begins, groups, 0))
        begins |= (groups - starts) % block_rows(self.n_groups) == 0
        self.block_first = np.flatnonzero(begins)
        self.block_end = np.append(self.block_first[1:], self.n_groups)
        self.block = (np.cumsum(begins) - 1)[self.group].astype(np.int32)


def block_rows(n_rows: int) -> int:
    """Groups of a block. A pod has one block divided into cells again, and the cells of all blocks
    rated; with a size that grows as the square root of the rows, both grow like it."""
    times = 1
    while n_rows > BLOCK_NODES * times * times:
        times *= 2
    return BLOCK_ROWS * times


def _distinct(codes: at.Codes) -> tuple[at.Codes, at.Ints]:
    """int32 (n_keys, n_groups), the different columns of `codes` in their order, the first key
    first; and int64 (n_nodes,), which of them each row has. codes: int32 (n_keys, n_nodes)."""
    groups = np.zeros(codes.shape[1], dtype=np.int64)
    for values in codes:
        # Whole numbers are sorted much faster than columns.
        apart = groups * (int(values.max(initial=-1)) + 2) + values + 1
        _, first, groups = np.unique(apart, return_index=True, return_inverse=True)
    return codes[:, first], groups


Stacked = tuple[at.Ints, at.Codes, at.Codes, at.Codes]


def stacked(layouts: list[Layout], n_nodes: int) -> Stacked:
    """The layouts stacked for the kernels: groups, values, places, rows_of."""
    n_groups = max((one.n_groups for one in layouts), default=1)
    width = max((one.width for one in layouts), default=2)
    groups = np.zeros((len(layouts), 4, n_groups), dtype=np.int64)
    values = np.full((len(layouts), at.KEYS_MAX, n_groups), -1, dtype=np.int32)
    places = np.zeros((len(layouts), 3, n_nodes), dtype=np.int32)
    rows_of = np.full((len(layouts), width), -1, dtype=np.int32)
    for i, one in enumerate(layouts):
        groups[i, at.FIRST, : one.n_groups] = one.first
        groups[i, at.SIZE, : one.n_groups] = one.size
        n_blocks = one.block_first.shape[0]
        groups[i, at.BLOCK_FIRST, :n_blocks] = one.block_first
        groups[i, at.BLOCK_END, :n_blocks] = one.block_end
        values[i, :, : one.n_groups] = one.value
        places[i, at.GROUP], places[i, at.LEAF] = one.group, one.leaf
        places[i, at.BLOCK] = one.block
        rows_of[i, : one.width] = one.row
    return groups, values, places, rows_of


def _row_slot(codes: at.Codes) -> int:
    """The first key of which every row has a value of its own; NO_SLOT if there is none. codes:
    int32 (n_keys, n_nodes)."""
    for slot, values in enumerate(codes):
        if values.size and values.min() >= 0 and int(np.bincount(values).max()) == 1:
            return slot
    return NO_SLOT


def is_host_like(codes: NDArray[np.int32], n_values: int) -> bool:
    """True if every label value is on at most one row, so that domains are rows."""
    present = codes[codes >= 0]
    return present.size == 0 or int(np.bincount(present, minlength=n_values).max()) <= 1
