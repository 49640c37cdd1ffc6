"""ClassArrays: kernel arrays of all classes and terms, grown as classes are added.

All state that a kernel writes (counts, totals, score trees and their validity) lives here.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.columns.array_types import grow, zero_columns
from stowplan.columns.engine import arrays as at
from stowplan.cycle.engine.classes import CLASSES_MAX
from stowplan.cycle.engine.layouts import Layout, stacked

TREES_BYTES_MAX = 1 << 28
"""Memory limit of score trees; beyond it the least recently used class loses its tree."""


CELLS_MAX = 8
"""Cells of a block; the groups of one with more kinds are rated one by one."""

CLASSES_FEW = 256
"""With more classes than this there is room for as many as are kept."""

_ROW = ""
"""No label has this key."""

LOG_MIN = 1 << 16
"""The log is not trimmed below this many entries, or 8 per node."""


class ClassArrays:
    """Arrays for one node table, excluding pod counts and amounts. n_forgotten: entries that were
    dropped from the start of the log."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.n_nodes = nodes.n_nodes
        self.n_classes = 0
        self.n_terms = 0
        self.classes = np.zeros((8, at.N_COLUMNS), dtype=np.int64)
        self._trees = np.zeros((8, 1), dtype=np.int32)
        self._cells = np.zeros((8, 1, 1 + 2 * CELLS_MAX), dtype=np.int32)
        # Classes that have their own tree, least recently used first.
        self._owners: OrderedDict[int, int] = OrderedDict()
        self.terms = np.zeros((8, at.N_TERM_COLUMNS), dtype=np.int64)
        self.counts = np.zeros(8, dtype=np.int64)
        self.present = np.zeros(8, dtype=np.uint8)
        self._n_counts = 0
        # First counts of terms by what they count, and the terms that share those of another.
        self._first_counts: dict[tuple[Hashable, int], int] = {}
        self._sharing: set[int] = set()
        self._lines = np.zeros((1, at.N_LINE_COLUMNS), dtype=np.int64)
        self._line_numbers: dict[tuple[int, ...], int] = {}
        # Of the classes that have any, terms and counts in turn: a thousand classes with affinity
        # to each other have a million.
        self._effects: dict[int, array[int]] = {}
        self._keys: dict[str, int] = {}
        self._codes = np.full((1, nodes.n_nodes), -1, dtype=np.int32)
        self._masks: list[NDArray[np.uint8]] = []
        self._behind = nodes.images.behind(nodes.n_nodes)
        self._layouts: dict[tuple[str, ...], int] = {}
        self._layout_list: list[Layout] = []
        self._passes: list[NDArray[np.uint8]] = []
        self._points: list[NDArray[np.int64]] = []
        self._raw: list[NDArray[np.int64]] = []
        self.log = np.zeros(1024, dtype=np.int32)
        self.n_log = 0
        self.n_forgotten = 0
        self._logs = logarithms(3)
        self._kernel_arrays: tuple[at.ClassRules, at.DomainGrouping, at.Scratch] | None = None

    # Classes.

    def add_class(self) -> int:
        """Add a class; returns its number."""
        return self.add_classes(1)

    def add_classes(self, n: int) -> int:
        """Add classes; returns the number of the first."""
        number = self.n_classes
        self.n_classes += n
        if self.n_classes > self.classes.shape[0]:
            self._grow_classes()
            self._kernel_arrays = None
        self.classes[number : self.n_classes, at.SEEN] = -1
        return number

    def _grow_classes(self) -> None:
        if self.n_classes <= CLASSES_FEW or self.n_classes > CLASSES_MAX:
            self.classes = grow(self.classes, (self.n_classes, at.N_COLUMNS))
            return
        # Room for all that are kept takes memory as it is used; copies would take it several times.
        larger = zero_columns((CLASSES_MAX, at.N_COLUMNS))
        larger[: self.classes.shape[0]] = self.classes
        self.classes = larger

    def line(self, scores: tuple[int, ...]) -> int:
        """Number of a line, scores by percentage."""
        number = self._line_numbers.get(scores)
        if number is None:
            number = self._line_numbers[scores] = len(self._line_numbers)
            self._lines = grow(self._lines, (number + 1, at.N_LINE_COLUMNS))
            self._lines[number, : len(scores)] = scores
            self._kernel_arrays = None
        return number

    def want_tree(self, number: int) -> None:
        """Give a class its own tree, kept until it is the least recently used."""
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
                self._kernel_arrays = None
                self._trees = grow(self._trees, (tree + 1, self._trees.shape[1]))
        owners[number] = tree
        self.classes[number, [at.TREE, at.SEEN]] = tree, -1

    def add_effect(self, number: int, term: int, count: int) -> None:
        """Record that placing a pod of a class adds to a term's count."""
        self._effects.setdefault(number, array("q")).extend((term, count))
        self._kernel_arrays = None

    # Shared by classes.

    def passes(self, statics: at.Ints) -> NDArray[np.bool_]:
        """bool (n, n_nodes): rows that pass all node-only rules. statics: int64 (n,)."""
        return np.array([self._passes[number] for number in statics.tolist()], dtype=np.bool_)

    def add_static(self, passes: NDArray[np.bool_], points: at.Ints, raw: Sequence[at.Ints]) -> int:
        """Add the result of node-only rules; returns its number."""
        number = len(self._passes)
        self._passes.append(passes.astype(np.uint8))
        self._points.append(points)
        stack = np.zeros((at.NORMALISED_MAX, passes.shape[0]), dtype=np.int64)
        for k, values in enumerate(raw):
            stack[k] = values
        self._raw.append(stack)
        self._kernel_arrays = None
        return number

    def add_static_like(self, number: int, passes: NDArray[np.bool_]) -> int:
        """Add a result with the scores of another and these rows; returns its number."""
        raw = list(self._raw[number])
        return self.add_static(passes, self._points[number], raw)

    def write_raw(self, number: int, k: int, rows: at.Ints, values: at.Ints) -> None:
        """Change the k-th raw score of rows of a result; a caller that changes any for a class that
        has a tree calls `evaluate_again`."""
        self._raw[number][k, rows] = values
        if self._kernel_arrays is not None:
            self._kernel_arrays[0].raw[number, k, rows] = values

    def evaluate_again(self, number: int) -> None:
        """Have all rows of a class evaluated."""
        self.classes[number, at.SEEN] = -1

    def write_passes(self, number: int, rows: at.Ints, passes: NDArray[np.bool_]) -> None:
        """Change which of these rows pass; the caller logs the rows."""
        self._passes[number][rows] = passes
        if self._kernel_arrays is not None:
            self._kernel_arrays[0].passes[number, rows] = passes

    def key(self, key: str) -> int:
        """Number of a topology key."""
        number = self._keys.get(key)
        if number is None:
            number = self._keys[key] = len(self._keys)
            n_nodes = self._nodes.n_nodes
            self._codes = grow(self._codes, (number + 1, n_nodes), fill=-1)
            self._codes[number] = self._nodes.labels.column(key).codes[:n_nodes]
            self._kernel_arrays = None
        return number

    def row_key(self) -> int:
        """Number of a key whose values are the rows themselves."""
        number = self.key(_ROW)
        if self._codes[number, 0] < 0:
            self._codes[number] = np.arange(self.n_nodes)
        return number

    def codes(self, key: int) -> at.Codes:
        """int32 (n_nodes,): values of a topology key."""
        codes: at.Codes = self._codes[key]
        return codes

    def layout(self, keys: tuple[str, ...]) -> tuple[int, Layout]:
        """Number and layout of a tuple of topology keys."""
        number = self._layouts.get(keys)
        if number is None:
            number = self._layouts[keys] = len(self._layout_list)
            self._layout_list.append(Layout(self._nodes, keys))
            self._kernel_arrays = None
        return number, self._layout_list[number]

    def group(self, params: at.Ints, layout: int, *, by_block: bool) -> None:
        """Write a class's layout. by_block: rate its groups by blocks where there are any."""
        one = self._layout_list[layout]
        n_blocks = one.block_first.shape[0] if by_block else 0
        params[[at.LAYOUT, at.N_GROUPS, at.N_BLOCKS, at.INNER]] = (
            layout, one.n_groups, n_blocks, one.inner,
        )  # fmt: skip

    def updates_image_counts(self, row: int) -> bool:
        """True for a row whose image counts are updated once a pod is placed on it."""
        return bool(self._behind[row])

    def add_mask(self, mask: NDArray[np.bool_]) -> int:
        """Add a mask of rows whose pods count; returns its number."""
        self._masks.append(mask.astype(np.uint8))
        return len(self._masks) - 1

    # Terms.

    def add_term(self, n_values: int, same_counts: Hashable = None) -> int:
        """Add a term with `n_values` values; returns its number. same_counts: equal for terms that
        share their counts, None for one that has its own."""
        number, first = self.n_terms, self._n_counts
        self.n_terms += 1
        if same_counts is not None:
            first = self._first_counts.setdefault((same_counts, n_values), first)
        if first == self._n_counts:
            self._n_counts += n_values
        else:
            self._sharing.add(number)
        self.terms = grow(self.terms, (self.n_terms, at.N_TERM_COLUMNS))
        self.counts = grow(self.counts, (self._n_counts,))
        self.present = grow(self.present, (self._n_counts,))
        self.terms[number, at.FIRST_COUNT] = first
        self.terms[number, at.N_VALUES] = n_values
        self._kernel_arrays = None
        return number

    def counting(self, terms: Iterable[int]) -> list[int]:
        """Those of these terms that do not share the counts of an earlier one."""
        return [term for term in terms if term not in self._sharing]

    def counted(self, term: int) -> at.Ints:
        """int64 (n_values,): counts of a term, writable."""
        first, n_values = self.terms[term, [at.FIRST_COUNT, at.N_VALUES]].tolist()
        counts: at.Ints = self.counts[first : first + n_values]
        return counts

    # The log.

    def note(self, rows: list[int] | None, n_more: int) -> None:
        """Log rows changed from outside (None for all rows) and reserve `n_more` entries."""
        if rows is None:
            self.classes[: self.n_classes, at.SEEN] = -1
            self.terms[:, at.N_LOWEST] = 0
            rows = []
        n_log_needed = self.n_log + len(rows) + n_more
        if n_log_needed > max(8 * self._nodes.n_nodes, LOG_MIN):
            self._forget_half()
            n_log_needed = self.n_log + len(rows) + n_more
        if n_log_needed > self.log.shape[0]:
            self.log = grow(self.log, (n_log_needed,))
            self._kernel_arrays = None
        if rows:
            self.log[self.n_log : self.n_log + len(rows)] = rows
            self.n_log += len(rows)

    def _forget_half(self) -> None:
        half = self.n_log // 2
        self.log[: self.n_log - half] = self.log[half : self.n_log].copy()
        self.n_log -= half
        self.n_forgotten += half
        seen = self.classes[: self.n_classes, at.SEEN]
        seen[:] = np.where(seen < half, -1, seen - half)

    # Kernel arguments.

    def rules_on(self, number: int, rows: at.Ints) -> at.ClassRules:
        """The rules of one class without terms on some rows, as those of class 0; copies."""
        static, params = int(self.classes[number, at.STATIC]), self.classes[[number]]
        # Rows have other numbers there.
        params[0, at.N_FEW] = 0
        return at.ClassRules(
            params,
            self._passes[static][rows][np.newaxis],
            self._points[static][rows][np.newaxis],
            self._raw[static].take(rows, axis=1)[np.newaxis],
            np.zeros((1, at.N_TERM_COLUMNS), dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            np.zeros(1, dtype=np.uint8),
            np.full((1, rows.shape[0]), -1, dtype=np.int32),
            np.zeros((0, rows.shape[0]), dtype=np.uint8),
            self._behind[rows],
            self._logs[:3],
            np.zeros(2, dtype=np.int64),
            np.zeros((0, 2), dtype=np.int64),
            self._lines,
        )

    def kernel_arrays(self) -> tuple[at.NodeColumns, at.ClassRules, at.DomainGrouping, at.Scratch]:
        """All arrays in the kernels' layout, including the node table's columns."""
        if self._kernel_arrays is None:
            rules, grouping = self._rules(), self._grouping()
            self._kernel_arrays = rules, grouping, self._scratch(grouping.groups.shape[2])
        nodes = self._nodes
        return at.NodeColumns(*nodes.amounts, nodes.rank), *self._kernel_arrays

    def arguments(self) -> tuple[tuple[NDArray[Any], ...], ...]:
        """The kernel arrays as plain tuples. A type of our own in a kernel's signature would
        invalidate Numba's disk cache whenever the type changes."""
        return tuple(tuple(one) for one in self.kernel_arrays())

    def _rules(self) -> at.ClassRules:
        n_nodes = self._nodes.n_nodes
        # Also of classes that are added later, which have none.
        first_effect = np.zeros(self.classes.shape[0] + 1, dtype=np.int64)
        numbers = sorted(self._effects)
        effects = [np.frombuffer(self._effects[number], dtype=np.int64) for number in numbers]
        first_effect[[number + 1 for number in numbers]] = [one.shape[0] // 2 for one in effects]
        np.cumsum(first_effect, out=first_effect)
        n_groups = max((one.n_groups for one in self._layout_list), default=1)
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
            np.concatenate([np.zeros(0, dtype=np.int64), *effects]).reshape(-1, 2),
            self._lines,
        )

    def _grouping(self) -> at.DomainGrouping:
        groups, values, places, rows_of = stacked(self._layout_list, self._nodes.n_nodes)
        width = rows_of.shape[1]
        if self._trees.shape[1] < width:
            self._trees = np.zeros((self._trees.shape[0], width), dtype=np.int32)
            self.classes[: self.n_classes, at.SEEN] = -1
        n_blocks = max((one.block_first.shape[0] for one in self._layout_list), default=0)
        shape = self._trees.shape[0], max(n_blocks, 1), 1 + 2 * CELLS_MAX
        if self._cells.shape != shape:
            self._cells = np.zeros(shape, dtype=np.int32)
            self.classes[: self.n_classes, at.SEEN] = -1
        return at.DomainGrouping(
            groups, values, places, rows_of, self._trees, self.log, self._cells
        )

    def _scratch(self, n_groups: int) -> at.Scratch:
        n_values = int(self.terms[:, at.N_VALUES].max(initial=0))
        shares, marks, salts = at.bound_arrays(self._nodes.n_nodes)
        return at.Scratch(
            by_group=np.zeros((at.N_GROUP_ROWS, n_groups), dtype=np.int64),
            by_term=np.zeros((1, self.n_terms + 1), dtype=np.int64),
            weights=np.zeros(self.n_terms + 1, dtype=np.float64),
            stamps=np.zeros(n_values + 3, dtype=np.int64),
            stack=np.zeros(64, dtype=np.int64),
            even=np.zeros(self._nodes.n_nodes, dtype=np.float64),
            leaves=np.zeros(self._nodes.n_nodes, dtype=np.int32),
            picked=np.zeros(n_groups, dtype=np.int64),
            shares=shares,
            marks=marks,
            salts=salts,
        )


def logarithms(n: int) -> NDArray[np.float64]:
    """float64 (n,): the logarithm of i + 2 at index i, computed as the walk does; NumPy's may
    differ in the last bit."""
    return np.fromiter(map(math.log, range(2, n + 2)), np.float64, n)


def _stacked_arrays(
    arrays: Sequence[NDArray[Any]], shape: tuple[int, ...], dtype: Any
) -> NDArray[Any]:
    """Stack the arrays along a new axis; an empty array if there are none."""
    return np.stack(arrays) if arrays else np.zeros((0, *shape), dtype=dtype)
