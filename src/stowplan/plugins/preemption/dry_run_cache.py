"""Dry runs cached per class of preemptors and row, and repeated where something has changed.

The dry run of a node depends on the node, the pods on it, those nominated to it, the disruption
budgets, and of the pod on its priority and what the filters read of it. So it is valid for every
pod of that class until the row changes. Where a filter reads beyond the row (topology spread, pod
affinity, third-party plugins) nothing is cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from stowplan.columns import NodeTable
from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import Snapshot
from stowplan.framework.runtime.touched_rows import TouchedRows
from stowplan.plugins.preemption.disruption_budgets import DisruptionBudgetIndex
from stowplan.plugins.preemption.dry_runs import DryRunResults
from stowplan.plugins.preemption.priority_rows import PodsOfTable
from stowplan.plugins.preemption.ranked_pods import RankedPods

CELLS_MAX = 2_000_000
CLASSES_MAX = 1024
"""Limits of rows times classes, and of classes; the least recently used class is dropped first."""

_EXTRA = "dry runs"


class CachedClassDryRuns:
    """The dry runs of one class, and which of them are stale."""

    def __init__(self, ranked: RankedPods) -> None:
        self.runs = DryRunResults(ranked)
        self._stale: Bools = np.zeros(0, dtype=np.bool_)
        self._touched = TouchedRows(of_pods=True)
        self._layout = -1
        self._cover: object = None
        self._allowed: Ints = np.zeros(0, dtype=np.int64)

    def stale(
        self, rows: Ints, snapshot: Snapshot, budgets: DisruptionBudgetIndex, own: int
    ) -> Ints:
        """int64: those of `rows` that have to be tried again.

        own: the row whose outcome is valid for the current pod only; -1 for none.
        """
        self._follow(snapshot, budgets)
        if own >= 0:
            self._stale[own] = True
        stale: Ints = rows[self._stale[rows]]
        return stale

    def settle(self, rows: Ints, own: int) -> None:
        """Mark these rows as tried."""
        self._stale[rows] = False
        if own >= 0:
            self._stale[own] = True

    def _follow(self, snapshot: Snapshot, budgets: DisruptionBudgetIndex) -> None:
        n_nodes, have = snapshot.nodes.n_nodes, self._stale.shape[0]
        if n_nodes != have:
            stale = np.ones(n_nodes, dtype=np.bool_)
            stale[:have] = self._stale[:n_nodes]
            self._stale = stale
        self.runs.make_room(n_nodes)
        touched = self._touched.take(snapshot)
        ranked = self.runs.ranked
        if touched is None or self._cover is not budgets.cover or self._layout != ranked.layout:
            self._stale[:] = True
        else:
            self._stale[[row for row in touched if row < n_nodes]] = True
            if self._allowed is not budgets.allowed:
                changed = np.flatnonzero(self._allowed != budgets.allowed)
                self._stale[ranked.rows_in(budgets.groups_under(changed))] = True
        self._cover, self._layout, self._allowed = budgets.cover, ranked.layout, budgets.allowed


class DryRunCache:
    """The cached dry runs of one table."""

    def __init__(self) -> None:
        self.ranked = RankedPods()
        self.budgets = DisruptionBudgetIndex()
        self.pods = PodsOfTable(self.budgets, self.ranked)
        self._classes: OrderedDict[Hashable, CachedClassDryRuns] = OrderedDict()

    @classmethod
    def of(cls, table: NodeTable) -> DryRunCache:
        """The cache of a table, created on first use."""
        kept = table.extras.get(_EXTRA)
        if not isinstance(kept, cls):
            kept = table.extras[_EXTRA] = cls()
        return kept

    def of_class(self, key: Hashable, snapshot: Snapshot, rows: Ints) -> CachedClassDryRuns:
        """The dry runs of a class, with the pods and budgets of `snapshot` on `rows`."""
        self.budgets.follow(snapshot.object_store)
        self.ranked.follow(snapshot.nodes, rows)
        self.ranked.group_by(self.budgets.cover, self.budgets.grouping)
        runs = self._classes.get(key)
        if runs is None:
            runs = self._classes[key] = CachedClassDryRuns(self.ranked)
        self._classes.move_to_end(key)
        most = min(CLASSES_MAX, CELLS_MAX // max(1, snapshot.nodes.n_nodes))
        while len(self._classes) > max(1, most):
            self._classes.popitem(last=False)
        return runs
