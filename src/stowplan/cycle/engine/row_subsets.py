"""Row subsets: kernels choose among some rows only, as the nodes of one topology domain.

A kernel is given a table of these rows alone, so that a run costs what its rows cost, and what it
writes concerns nothing else. Trials are kept until one of their rows changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.array_types import Ints
from stowplan.columns.engine import arrays as at
from stowplan.columns.engine.numpy_kernels import NumpyRun, RunRules
from stowplan.cycle.engine.class_arrays import CELLS_MAX, ClassArrays
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.framework.deciders.decider import RowTrial
from stowplan.objects.pod import Pod

KEPT_MAX = 64
"""Trials of a subset that are kept."""

TREE = 1
"""The tree of the only class."""

NO_CARDS: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)

RunKernel = Callable[..., int]


class SubsetPods(NamedTuple):
    """The pods of a run, all of one class. draws: uint64 (n_pods,), or (0,). scores: int64
    (n_pods,), output."""

    pods: Sequence[Pod]
    one: EnginePodClass
    draws: NDArray[np.uint64]
    scores: Ints


class RowSubset:
    """Some rows. rows: int64 (n_rows,), in the snapshot's order. kept: trials by class and number
    of pods."""

    __slots__ = ("given", "kept", "rows")

    def __init__(self, given: Ints, rank: Ints) -> None:
        # Its identity is the key of the subset.
        self.given = given
        self.rows = given[np.argsort(rank[given], kind="stable")]
        self.kept: dict[tuple[EnginePodClass, int], RowTrial] = {}


class SubsetTable:
    """The subsets of one node table, which follow its changes."""

    def __init__(self, class_arrays: ClassArrays, nodes: NodeTable) -> None:
        self.class_arrays = class_arrays
        self._nodes = nodes
        self._known: dict[int, RowSubset] = {}
        self._of_row: dict[int, list[RowSubset]] = {}
        self._n_rows = 0
        self._frames: dict[int, tuple[at.DomainGrouping, at.Scratch]] = {}
        self._generation = nodes.journal.generation

    def follow(self) -> None:
        """Forget the trials of subsets of which a row has changed."""
        journal = self._nodes.journal
        touched = journal.all_since(self._generation)
        self._generation = journal.generation
        if touched is None:
            self._forget()
            return
        for row in dict.fromkeys(touched):
            for one in self._of_row.get(row, ()):
                one.kept.clear()

    def of(self, rows: Ints) -> RowSubset:
        """The subset of these rows, the same for the same array."""
        found = self._known.get(id(rows))
        if found is None:
            # Plugins may make new arrays for each group.
            if self._n_rows > 16 * self._nodes.n_nodes:
                self._forget()
            found = self._known[id(rows)] = RowSubset(rows, self._nodes.rank)
            self._n_rows += rows.shape[0]
            for row in rows.tolist():
                self._of_row.setdefault(row, []).append(found)
        return found

    def _forget(self) -> None:
        self._known, self._of_row, self._n_rows = {}, {}, 0

    def arguments(self, one: EnginePodClass, subset: RowSubset) -> tuple[tuple[Any, ...], ...]:
        """Kernel arguments for a class on a subset, as if there were no other rows."""
        rows, nodes = subset.rows, self._nodes
        n_rows = rows.shape[0]
        if n_rows not in self._frames:
            self._frames[n_rows] = _frame(n_rows)
        grouping, scratch = self._frames[n_rows]
        # Arrays of another layout would have the kernel compiled again.
        allocatable, requested, nonzero, pod_count = nodes.amounts
        columns = at.NodeColumns(
            allocatable.take(rows, axis=1),
            requested.take(rows, axis=1),
            nonzero.take(rows, axis=1),
            pod_count.take(rows),
            nodes.rank.take(rows),
        )
        rules = self.class_arrays.rules_on(one.number, rows)
        rules.classes[0, [at.STATIC, at.LAYOUT, at.N_GROUPS, at.N_BLOCKS]] = 0, 0, 1, 0
        rules.classes[0, [at.TREE, at.SEEN]] = TREE, -1
        return tuple(columns), tuple(rules), tuple(grouping), tuple(scratch)


class RowTotals:
    """The points of some rows for single pods, of which only these rows are open."""

    def __init__(self, class_arrays: ClassArrays) -> None:
        self.class_arrays = class_arrays
        self._parsed: dict[int, RunRules] = {}

    def of(self, one: EnginePodClass, rows: Ints) -> Ints | None:
        """int64 (n_rows,): the points that a kernel finds for a class without terms; None where the
        class does not fit on one of the rows."""
        columns, rules, grouping, _ = self.class_arrays.kernel_arrays()
        parsed = self._parsed.get(one.number)
        if parsed is None:
            parsed = self._parsed[one.number] = RunRules(one.number, rules)
        total = NumpyRun(columns, rules, grouping, NO_CARDS).totals(parsed, rows)
        return total if total.min(initial=0) >= 0 else None


class SubsetRuns:
    """Places a run of pods of one class on subsets. run: the kernel."""

    def __init__(self, table: SubsetTable, pods: SubsetPods, run: RunKernel) -> None:
        self._table = table
        self._pods = pods
        self._run = run
        table.follow()

    def trials(self, placements: Iterable[Ints]) -> list[RowTrial] | None:
        """See `framework.deciders.decider.RowSubsets`."""
        key = self._pods.one, len(self._pods.pods)
        of = self._table.of
        found = []
        for rows in placements:
            subset = of(rows)
            trial = subset.kept.get(key)
            if trial is None:
                trial = self._trial(subset)
                if trial is None:
                    return None
                if len(subset.kept) >= KEPT_MAX:
                    subset.kept.clear()
                subset.kept[key] = trial
            found.append(trial)
        return found

    def _trial(self, subset: RowSubset) -> RowTrial | None:
        placed, _ = self._placed(subset)
        is_cut = 0 < len(placed) < len(self._pods.pods)
        if is_cut and self._table.class_arrays.updates_image_counts(placed[-1]):
            # The kernel stops there, and the walk finds other scores from then on.
            return None
        return RowTrial(placed)

    def place(self, rows: Ints, nodes: NodeTable) -> list[int] | None:
        """See `RowSubsets`."""
        subset, pods = self._table.of(rows), self._pods
        placed, columns = self._placed(subset)
        if len(placed) < len(pods.pods):
            return None
        for whole, part in zip(nodes.amounts[1:], columns[1:4], strict=True):
            whole[..., subset.rows] = part
        # The engine reads of these changes in the journal, as of all that are not its own.
        nodes.enter([PodInfo(pod, pods.one.footprint) for pod in pods.pods], placed)
        return placed

    def _placed(self, subset: RowSubset) -> tuple[list[int], tuple[Any, ...]]:
        """The rows of the pods that have one, and the columns that count them."""
        pods = self._pods
        n_pods = len(pods.pods)
        columns, rules, grouping, scratch = self._table.arguments(pods.one, subset)
        log = np.zeros(n_pods, dtype=np.int32)
        grouping = tuple(at.DomainGrouping(*grouping)._replace(log=log))
        places = np.empty(n_pods, dtype=np.int64)
        heads = np.zeros(n_pods, dtype=np.int64)
        n_placed = self._run(
            columns, rules, grouping, scratch, heads, pods.draws, places, pods.scores, NO_CARDS,
            NO_CARDS, 0,
        )  # fmt: skip
        return subset.rows[places[:n_placed]].tolist(), columns


def _frame(n_rows: int) -> tuple[at.DomainGrouping, at.Scratch]:
    """One group of all rows, and working memory."""
    size = 1
    while size < n_rows:
        size *= 2
    groups = np.zeros((1, 4, 1), dtype=np.int64)
    groups[0, at.SIZE, 0] = size
    places = np.zeros((1, 3, n_rows), dtype=np.int32)
    places[0, at.LEAF] = size + np.arange(n_rows)
    rows_of = np.full((1, 2 * size), -1, dtype=np.int32)
    rows_of[0, size : size + n_rows] = np.arange(n_rows)
    grouping = at.DomainGrouping(
        groups,
        np.full((1, at.KEYS_MAX, 1), -1, dtype=np.int32),
        places,
        rows_of,
        np.zeros((TREE + 1, 2 * size), dtype=np.int32),
        np.zeros(1, dtype=np.int32),
        np.zeros((TREE + 1, 1, 1 + 2 * CELLS_MAX), dtype=np.int32),
    )
    shares, marks, salts = at.bound_arrays(n_rows)
    scratch = at.Scratch(
        by_group=np.zeros((at.N_GROUP_ROWS, 1), dtype=np.int64),
        by_term=np.zeros((1, 1), dtype=np.int64),
        weights=np.zeros(1, dtype=np.float64),
        stamps=np.zeros(3, dtype=np.int64),
        stack=np.zeros(64, dtype=np.int64),
        even=np.zeros(n_rows, dtype=np.float64),
        leaves=np.zeros(n_rows, dtype=np.int32),
        picked=np.zeros(1, dtype=np.int64),
        shares=shares,
        marks=marks,
        salts=salts,
    )
    return grouping, scratch
