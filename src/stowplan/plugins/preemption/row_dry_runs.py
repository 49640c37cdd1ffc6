"""Dry runs of single rows that classes of preemptors share.

What evictions on a row give depends on the pods there, on the priority of the preemptor and on what
it requests. Preemptors of one priority that request about the same evict the same pods: each dry
run is kept with the least and the most that may be requested for it to end so.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import le
from typing import NamedTuple

from stowplan.columns import PodInfo
from stowplan.framework import Snapshot
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.framework.runtime.touched_rows import TouchedRows
from stowplan.plugins.preemption.disruption_budgets import DisruptionBudgetIndex
from stowplan.plugins.preemption.dry_runs import PRIORITY_OFFSET, candidate_costs
from stowplan.plugins.preemption.ordered_candidates import costs_at_best
from stowplan.plugins.preemption.pods_by_importance import (
    ImportantPod,
    MustBeWalked,
    PodsByImportance,
)
from stowplan.plugins.preemption.ranked_pods import pod_importance

PRIORITY_MIN = -PRIORITY_OFFSET
ANY_MOST = 2**62
"""No pod requests more."""

OUTCOMES_MAX = 64
"""Dry runs that are kept of a row for one priority, before they are forgotten."""

Amounts = tuple[int, ...]
Names = tuple[str, ...]
"""Resources, and amounts of them in base units, in the order in which a class requests them."""


class RowRoom(NamedTuple):
    """What is free on a row beside nominated pods: pod slots, and of each resource. offered: what
    the node has of each."""

    n_slots: int
    free: Amounts
    offered: Amounts


class EvictablePods:
    """The pods of a row that are below a priority. protected, free_to_go: those whose eviction
    takes a disruption budget below zero, and the others, the most important first. at_best: see
    `costs_at_best`, empty where there are none."""

    __slots__ = ("_outcomes", "_sums", "at_best", "free_to_go", "protected")

    def __init__(self, protected: list[ImportantPod], free_to_go: list[ImportantPod]) -> None:
        """Raises MustBeWalked for a priority below 32 bits."""
        self.protected, self.free_to_go = protected, free_to_go
        self.at_best: tuple[float, ...] = ()
        if protected or free_to_go:
            lowest = (free_to_go or protected)[-1].priority
            if lowest < PRIORITY_MIN:
                raise MustBeWalked
            self.at_best = costs_at_best(not free_to_go, lowest)
        self._sums: dict[Names, Amounts] = {}
        self._outcomes: dict[Names, list[DryRunOutcome]] = {}

    def known(self, names: Names, wanted: Amounts) -> DryRunOutcome | None:
        """The outcome for a preemptor that requests so much, if one is kept that holds for it."""
        for one in self._outcomes.get(names, ()):
            if all(map(le, one.least, wanted)) and all(map(le, wanted, one.most)):
                return one
        return None

    def keep(self, names: Names, outcome: DryRunOutcome) -> DryRunOutcome:
        """Keep an outcome; returns it."""
        kept = self._outcomes.setdefault(names, [])
        if len(kept) >= OUTCOMES_MAX:
            kept.clear()
        kept.append(outcome)
        return outcome

    def requested(self, names: Names) -> Amounts:
        """What all of these pods request."""
        sums = self._sums.get(names)
        if sums is None:
            every = (*self.protected, *self.free_to_go)
            sums = tuple(sum(one.requested.get(name, 0) for one in every) for name in names)
            self._sums[names] = sums
        return sums


class DryRunOutcome(NamedTuple):
    """What a dry run of a row ends with. candidate: None where eviction does not help. costs: of
    it. least, most: what may be requested of each resource for this outcome."""

    candidate: PreemptionCandidate | None
    costs: tuple[float, ...]
    least: Amounts
    most: Amounts


NO_VICTIMS_HELP: tuple[float, ...] = ()


class RowDryRuns:
    """The dry runs of one table, by row and priority of the preemptors."""

    def __init__(self, budgets: DisruptionBudgetIndex, importance: PodsByImportance) -> None:
        self._budgets = budgets
        self._importance = importance
        self._touched = TouchedRows(of_pods=True)
        self._made_for: tuple[object, int] = None, -1
        self._rows: dict[int, dict[int, EvictablePods]] = {}
        self._rooms: dict[int, dict[tuple[int, Names], RowRoom]] = {}

    def follow(self, snapshot: Snapshot) -> None:
        """Forget what was kept of rows that have changed."""
        touched = self._touched.take(snapshot)
        made_for = self._budgets.budgets, snapshot.nodes.shape
        if (
            touched is None
            or made_for[0] is not self._made_for[0]
            or made_for[1] != self._made_for[1]
        ):
            self._made_for, self._rows, self._rooms = made_for, {}, {}
            return
        for row in touched:
            self._rows.pop(row, None)
            self._rooms.pop(row, None)

    def room(
        self, row: int, priority: int, names: Names, make: Callable[[int], RowRoom]
    ) -> RowRoom:
        """What is free on a row for preemptors of this priority. make: returns it for a row."""
        rooms = self._rooms.get(row)
        if rooms is None:
            rooms = self._rooms[row] = {}
        found = rooms.get((priority, names))
        if found is None:
            found = rooms[priority, names] = make(row)
        return found

    def evictable(self, row: int, priority: int, pods: list[PodInfo]) -> EvictablePods:
        """The pods of a row that a preemptor of this priority may evict. pods: of the row, in the
        node's order. Raises MustBeWalked."""
        by_priority = self._rows.get(row)
        if by_priority is None:
            by_priority = self._rows[row] = {}
        found = by_priority.get(priority)
        if found is None:
            ranked = self._importance.of_row(row, pods)
            below = [one for one in ranked if one.priority < priority]
            found = by_priority[priority] = EvictablePods(*self._by_budget(below))
        return found

    def _by_budget(
        self, evictable: list[ImportantPod]
    ) -> tuple[list[ImportantPod], list[ImportantPod]]:
        """As `filter_pods_with_pdb_violation`."""
        allowed = self._budgets.allowed
        if not allowed.shape[0]:
            return [], evictable
        taken: dict[int, int] = {}
        protected: list[ImportantPod] = []
        free_to_go: list[ImportantPod] = []
        for one in evictable:
            violates = False
            for budget in one.covering:
                taken[budget] = n_taken = taken.get(budget, 0) + 1
                violates |= n_taken > allowed.item(budget)
            (protected if violates else free_to_go).append(one)
        return protected, free_to_go


def dry_run(
    evictable: EvictablePods,
    names: Names,
    wanted: Amounts,
    room: RowRoom,
    node_name: str,
) -> DryRunOutcome:
    """Evict all, and let stay who can, the protected first, for a pod that requests this much.
    room: before evictions."""
    least, most = [0] * len(names), [ANY_MOST] * len(names)
    protected, free_to_go = evictable.protected, evictable.free_to_go
    n_slots = room.n_slots + len(protected) + len(free_to_go) - 1
    offered = tuple(map(sum, zip(room.free, evictable.requested(names), strict=True)))
    for place, (have, want) in enumerate(zip(offered, wanted, strict=True)):
        if have < want:
            least[place] = have + 1
            return DryRunOutcome(None, NO_VICTIMS_HELP, tuple(least), tuple(most))
    if n_slots < 0:
        return DryRunOutcome(None, NO_VICTIMS_HELP, tuple(least), tuple(most))
    most = list(offered)
    left = [have - want for have, want in zip(offered, wanted, strict=True)]
    victims: list[PodInfo] = []
    n_violations = 0
    for at, one in enumerate((*protected, *free_to_go)):
        after = [have - one.requested.get(name, 0) for have, name in zip(left, names, strict=True)]
        lacks = min(after, default=0)
        if n_slots > 0 and lacks >= 0:
            n_slots -= 1
            left = after
            most = [min(a, b + c) for a, b, c in zip(most, wanted, after, strict=True)]
            continue
        if n_slots > 0:
            # It goes as long as this resource lacks.
            place = after.index(lacks)
            least[place] = max(least[place], wanted[place] + lacks + 1)
        victims.append(one.info)
        n_violations += at < len(protected)
    if not victims:
        return DryRunOutcome(None, NO_VICTIMS_HELP, tuple(least), tuple(most))
    if protected and free_to_go:
        victims.sort(key=pod_importance)
    candidate = PreemptionCandidate(node_name, tuple(victims), n_violations)
    return DryRunOutcome(candidate, candidate_costs(candidate), tuple(least), tuple(most))
