"""Sheets: the arrays of all classes and terms, which grow as these come in.

What a kernel writes (counts, totals, trees, how far they are true) lives here and nowhere else.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.columns.array_types import grow
from stowplan.columns.engine import arrays as at
from stowplan.cycle.engine.layouts import Layout, stacked

TREES_BYTES_MAX = 1 << 28
"""How much memory trees may take; when it is used up, the class asked for longest ago loses its."""


LOG_MIN = 1 << 16
"""With up to so many entries, or 8 per node, none is dropped from the log."""


class ClassArrays:
    """The arrays for one table of nodes as it is now, pods and amounts apart."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.n_classes = 0
        self.n_terms = 0
        self.classes = np.zeros((8, at.N_COLUMNS), dtype=np.int64)
        self._trees = np.zeros((8, 1), dtype=np.int32)
        # The classes that have a tree of their own, the one asked for longest ago first.
        self._owners: OrderedDict[int, int] = OrderedDict()
        self.terms = np.zeros((8, at.N_TERM_COLUMNS), dtype=np.int64)
        self.counts = np.zeros(8, dtype=np.int64)
        self.present = np.zeros(8, dtype=np.uint8)
        self._n_counts = 0
        self._effects: list[list[tuple[int, int]]] = []
        self._keys: dict[str, int] = {}
        self._codes = np.full((1, nodes.n_nodes), -1, dtype=np.int32)
        self._masks: list[NDArray[np.uint8]] = []
        self._behind = nodes.images.behind(nodes.n_nodes)
        self._layouts: dict[tuple[str, ...], int] = {}
        self._made: list[Layout] = []
        self._passes: list[NDArray[np.uint8]] = []
        self._points: list[NDArray[np.int64]] = []
        self._raw: list[NDArray[np.int64]] = []
        self.log = np.zeros(1024, dtype=np.int32)
        self.n_log = 0
        self._logs = np.log(np.arange(2, 4, dtype=np.float64))
        self._board: tuple[at.ClassRules, at.DomainGrouping, at.Scratch] | None = None

    # Classes.

    def add_class(self) -> int:
        """A class; returns its number."""
        number = self.n_classes
        self.n_classes += 1
        if number == self.classes.shape[0]:
            self.classes = grow(self.classes, (self.n_classes, at.N_COLUMNS))
        self.classes[number, at.SEEN] = -1
        self._effects.append([])
        self._board = None
        return number

    def want_tree(self, number: int) -> None:
        """Let a class have a tree of its own, which it keeps while others are asked for less."""
        owners = self._owners
        if number in owners:
            owners.move_to_end(number)
            return
        tree = len(owners) + 1
        if tree >= self._trees.shape[0]:
            if self._trees.nbytes * 2 > TREES_BYTES_MAX:
                loser, tree = owners.popitem(last=False)
                self.classes[loser, at.TREE] = at.SHARED
            else:
                self._board = None
                self._trees = grow(self._trees, (tree + 1, self._trees.shape[1]))
        owners[number] = tree
        self.classes[number, [at.TREE, at.SEEN]] = tree, -1

    def add_effect(self, number: int, term: int, count: int) -> None:
        """Placing a pod of a class adds to a term's count."""
        self._effects[number].append((term, count))
        self._board = None

    # What many classes share.

    def passes(self, statics: at.Ints) -> NDArray[np.bool_]:
        """bool (n, n_nodes): the rows that pass all rules about nodes. statics: int64 (n,)."""
        return np.array([self._passes[number] for number in statics.tolist()], dtype=np.bool_)

    def add_static(self, passes: NDArray[np.bool_], points: at.Ints, raw: Sequence[at.Ints]) -> int:
        """What rules about nodes say; returns its number."""
        number = len(self._passes)
        self._passes.append(passes.astype(np.uint8))
        self._points.append(points)
        stack = np.zeros((at.NORMALISED_MAX, passes.shape[0]), dtype=np.int64)
        for k, values in enumerate(raw):
            stack[k] = values
        self._raw.append(stack)
        self._board = None
        return number

    def key(self, key: str) -> int:
        """The number of a topology key."""
        number = self._keys.get(key)
        if number is None:
            number = self._keys[key] = len(self._keys)
            n_nodes = self._nodes.n_nodes
            self._codes = grow(self._codes, (number + 1, n_nodes), fill=-1)
            self._codes[number] = self._nodes.labels.column(key).codes[:n_nodes]
            self._board = None
        return number

    def codes(self, key: int) -> at.Codes:
        """int32 (n_nodes,): the values of a topology key."""
        codes: at.Codes = self._codes[key]
        return codes

    def layout(self, keys: tuple[str, ...]) -> tuple[int, Layout]:
        """The number of a layout, and the layout."""
        number = self._layouts.get(keys)
        if number is None:
            number = self._layouts[keys] = len(self._made)
            self._made.append(Layout(self._nodes, keys))
            self._board = None
        return number, self._made[number]

    def n_groups(self, layout: int) -> int:
        """How many groups a layout has."""
        return self._made[layout].n_groups

    def is_behind(self, row: int) -> bool:
        """True for a row that takes over how many nodes have its images once a pod comes to it."""
        return bool(self._behind[row])

    def add_mask(self, mask: NDArray[np.bool_]) -> int:
        """The rows whose pods count; returns the mask's number."""
        self._masks.append(mask.astype(np.uint8))
        return len(self._masks) - 1

    # Terms.

    def add_term(self, n_values: int) -> int:
        """A term with room for this many values; returns its number."""
        number, first = self.n_terms, self._n_counts
        self.n_terms += 1
        self._n_counts += n_values
        self.terms = grow(self.terms, (self.n_terms, at.N_TERM_COLUMNS))
        self.counts = grow(self.counts, (self._n_counts,))
        self.present = grow(self.present, (self._n_counts,))
        self.terms[number, at.FIRST_COUNT] = first
        self.terms[number, at.N_VALUES] = n_values
        self._board = None
        return number

    def counted(self, term: int) -> at.Ints:
        """int64 (n_values,): the counts of a term, to be written."""
        first, n_values = self.terms[term, [at.FIRST_COUNT, at.N_VALUES]].tolist()
        counts: at.Ints = self.counts[first : first + n_values]
        return counts

    # The log.

    def note(self, rows: list[int] | None, n_more: int) -> None:
        """Rows that others touched, None for any; and let there be room for `n_more` entries."""
        if rows is None:
            self.classes[:, at.SEEN] = -1
            rows = []
        wanted = self.n_log + len(rows) + n_more
        if wanted > max(8 * self._nodes.n_nodes, LOG_MIN):
            self._forget_half()
            wanted = self.n_log + len(rows) + n_more
        if wanted > self.log.shape[0]:
            self.log = grow(self.log, (wanted,))
            self._board = None
        if rows:
            self.log[self.n_log : self.n_log + len(rows)] = rows
            self.n_log += len(rows)

    def _forget_half(self) -> None:
        half = self.n_log // 2
        self.log[: self.n_log - half] = self.log[half : self.n_log].copy()
        self.n_log -= half
        seen = self.classes[:, at.SEEN]
        seen[:] = np.where(seen < half, -1, seen - half)

    # The board.

    def kernel_arrays(self) -> tuple[at.NodeColumns, at.ClassRules, at.DomainGrouping, at.Scratch]:
        """Everything as the kernels read it, the node table's own columns included."""
        if self._board is None:
            rules, grouping = self._rules(), self._grouping()
            self._board = rules, grouping, self._scratch(grouping.groups.shape[2])
        nodes = self._nodes
        return at.NodeColumns(*nodes.amounts, nodes.rank), *self._board

    def arguments(self) -> tuple[tuple[NDArray[Any], ...], ...]:
        """The board as plain tuples: a type of ours in a kernel's signature would make its disk
        cache unreadable when the type changes."""
        return tuple(tuple(one) for one in self.kernel_arrays())

    def _rules(self) -> at.ClassRules:
        n_nodes = self._nodes.n_nodes
        first_effect = np.zeros(self.n_classes + 1, dtype=np.int64)
        first_effect[1:] = np.cumsum([len(one) for one in self._effects])
        effects = [effect for one in self._effects for effect in one]
        n_groups = max((one.n_groups for one in self._made), default=1)
        if self._logs.shape[0] < n_groups + 2:
            self._logs = logarithms(n_groups + 2)
        return at.ClassRules(
            self.classes,
            _stacked_arrays(self._passes, (n_nodes,), np.uint8),
            _stacked_arrays(self._points, (n_nodes,), np.int64),
            _stacked_arrays(self._raw, (at.NORMALISED_MAX, n_nodes), np.int64),
            self.terms,
            self.counts,
            self.present,
            self._codes,
            _stacked_arrays(self._masks, (n_nodes,), np.uint8),
            self._behind,
            self._logs,
            first_effect,
            np.array(effects, dtype=np.int64).reshape(-1, 2),
        )

    def _grouping(self) -> at.DomainGrouping:
        groups, values, places, rows_of = stacked(self._made, self._nodes.n_nodes)
        width = rows_of.shape[1]
        if self._trees.shape[1] < width:
            self._trees = np.zeros((self._trees.shape[0], width), dtype=np.int32)
            self.classes[:, at.SEEN] = -1
        return at.DomainGrouping(groups, values, places, rows_of, self._trees, self.log)

    def _scratch(self, n_groups: int) -> at.Scratch:
        n_values = int(self.terms[:, at.N_VALUES].max(initial=0))
        return at.Scratch(
            by_group=np.zeros((5, n_groups), dtype=np.int64),
            by_term=np.zeros((1, self.n_terms + 1), dtype=np.int64),
            weights=np.zeros(self.n_terms + 1, dtype=np.float64),
            stamps=np.zeros(n_values + 3, dtype=np.int64),
            stack=np.zeros(64, dtype=np.int64),
            even=np.zeros(self._nodes.n_nodes, dtype=np.float64),
            leaves=np.zeros(self._nodes.n_nodes, dtype=np.int32),
        )


def logarithms(n: int) -> NDArray[np.float64]:
    """float64 (n,): the logarithm of i + 2 at i, as the walk takes it: NumPy's own may differ from
    it in the last bit."""
    return np.array([math.log(float(i + 2)) for i in range(n)])


def _stacked_arrays(
    arrays: Sequence[NDArray[Any]], shape: tuple[int, ...], dtype: Any
) -> NDArray[Any]:
    """The arrays as one with an axis more; empty where there is none."""
    return np.stack(arrays) if arrays else np.zeros((0, *shape), dtype=dtype)
