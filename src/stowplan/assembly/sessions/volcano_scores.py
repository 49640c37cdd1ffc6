"""KindScores: the weighted scores of all nodes for one kind of pod, which follow changed rows."""

from __future__ import annotations

from collections.abc import Collection, Hashable

import numpy as np

from stowplan.columns.array_types import Floats, Ints
from stowplan.framework import CycleState, Framework, Snapshot
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.pod import Pod

FEW, ANEW_SHARE = 16, 8
"""With more rows changed than a few, and more than one in so many, all rows are evaluated."""
MEMO_MAX = 4096
"""Sums that are remembered by the amounts of a row."""


class KindScores:
    """Scores of pods of which plugins read the same.

    They are kept only where each depends on its row, other rows at most by normalization, and where
    no pod that is placed later can change that: `is_kept`. key: equal for kinds with equal scores.
    """

    def __init__(
        self, framework: Framework, pod: Pod, snapshot: Snapshot, unprepared: Collection[str]
    ) -> None:
        """unprepared: members that read what their PreFilter found, which does not run before these
        scores, so that they score all nodes alike."""
        self._pod, self._nodes = pod, snapshot.nodes
        self._state = CycleState()
        nodes, state = self._nodes, self._state
        self.key: Hashable = None
        self.is_kept = False
        if nodes.n_nodes == 0 or _has_pod_affinity(pod):
            return
        rows = np.arange(nodes.n_nodes, dtype=np.int64)
        if not framework.run_pre_score(pod, snapshot, rows, state).is_success:
            return
        self._members = [m for m in framework.at("score") if m.name not in state.skip_score]
        self.is_kept = all(
            m.name in unprepared
            or ((m.node_only or _by_amounts(m)) and m.calls["signature"] is not None)
            for m in self._members
        )
        if self.is_kept:
            self.key = tuple(
                (m.name, None if m.name in unprepared else m.call("signature", pod))
                for m in self._members
            )

    def fill(self) -> None:
        """Compute the scores of all rows."""
        nodes, pod, state = self._nodes, self._pod, self._state
        self._base = np.zeros(nodes.n_nodes, dtype=np.float64)
        self._by_amounts = [m for m in self._members if _by_amounts(m)]
        # Members whose normalization depends on which rows are asked about, with raw scores.
        self._varying: list[tuple[RegisteredPlugin, Ints]] = []
        for member in self._members:
            if _by_amounts(member):
                continue
            raw = member.scores(pod, nodes, nodes.all_rows, state)
            normal = member.normalized(raw, pod, nodes, nodes.all_rows, state)
            if normal is raw or raw.min() == raw.max():
                self._base += normal // member.divisor * member.weight
            else:
                self._varying.append((member, np.array(raw)))
        self._memo: dict[tuple[bytes, ...], float] = {}
        self._column = self._base + self._sums(np.arange(nodes.n_nodes, dtype=np.int64))
        self._generation = nodes.journal.generation

    @property
    def is_by_row(self) -> bool:
        """True if no other row matters to the score of a row."""
        return not self._varying

    def at(self, row: int) -> float:
        """The score of one row, where only that row matters to it."""
        self._follow()
        return float(self._column[row])

    def totals(self, rows: Ints) -> Floats:
        """float64 (n_rows,): a new array."""
        self._follow()
        total: Floats = self._column[rows]
        if self._varying:
            order = np.argsort(rows, kind="stable")
            ascending = rows[order]
            for member, raw in self._varying:
                normal = member.normalized(
                    raw[ascending], self._pod, self._nodes, ascending, self._state
                )
                total[order] += normal // member.divisor * member.weight
        return total

    def _follow(self) -> None:
        journal, n_nodes = self._nodes.journal, self._nodes.n_nodes
        if self._generation == journal.generation or not self._by_amounts:
            return
        changed = journal.since(self._generation)
        if changed is None or len(changed) > max(FEW, n_nodes // ANEW_SHARE):
            self._column = self._base + self._sums(np.arange(n_nodes, dtype=np.int64))
        else:
            for row in changed:
                self._column[row] = self._base[row] + self._sum_at(row)
        self._generation = journal.generation

    def _sums(self, rows: Ints) -> Floats:
        """float64 (n_rows,): scores that depend on the amounts of a row."""
        total: Floats = np.zeros(rows.shape[0], dtype=np.float64)
        for member in self._by_amounts:
            raw = member.call("score_column", self._pod, self._nodes, rows, self._state)
            total += raw // member.divisor * member.weight
        return total

    def _sum_at(self, row: int) -> float:
        """The same for one row; remembered by its amounts, as many nodes are alike."""
        allocatable, requested, nonzero, _ = self._nodes.amounts
        key = (
            allocatable[:, row].tobytes(),
            requested[:, row].tobytes(),
            nonzero[:, row].tobytes(),
        )
        found = self._memo.get(key)
        if found is None:
            if len(self._memo) >= MEMO_MAX:
                self._memo.clear()
            found = self._memo[key] = float(self._sums(np.array([row], dtype=np.int64))[0])
        return found


class NoScores:
    """Scores where no plugin has any."""

    def totals(self, rows: Ints) -> Floats:
        """float64 (n_rows,): zeros."""
        return np.zeros(rows.shape[0], dtype=np.float64)

    def at(self, row: int) -> float:
        """0.0."""
        return 0.0


NO_SCORES = NoScores()


def _by_amounts(member: RegisteredPlugin) -> bool:
    return member.declaration.scores_by_amounts and member.calls["normalize_score"] is None


def _has_pod_affinity(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and bool(affinity.pod_affinity or affinity.pod_anti_affinity)
