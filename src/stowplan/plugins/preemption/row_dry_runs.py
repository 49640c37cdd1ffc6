"""Dry runs of single rows that classes of preemptors share.

What evictions on a row give depends on the pods there, on the priority of the preemptor and on what
it requests. Preemptors of one priority that request about the same evict the same pods: each dry
run is kept with the least and the most that may be requested for it to end so.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import le, sub
from typing import NamedTuple
from weakref import WeakSet

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

NOTHING_KEPT: tuple[object, int] = None, -1
"""The budgets and the shape for which dry runs are kept, where none are."""

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
    takes a disruption budget below zero, and the others, the most important first."""

    __slots__ = ("_at_best", "_outcomes", "free_to_go", "protected")

    def __init__(self, protected: list[ImportantPod], free_to_go: list[ImportantPod]) -> None:
        self.protected, self.free_to_go = protected, free_to_go
        self._at_best: tuple[float, ...] = ()
        self._outcomes: dict[Names, list[DryRunOutcome]] = {}

    def __len__(self) -> int:
        return len(self.protected) + len(self.free_to_go)

    @property
    def at_best(self) -> tuple[float, ...]:
        """See `costs_at_best`. Raises MustBeWalked for a priority below 32 bits."""
        if not self._at_best:
            lowest = (self.free_to_go or self.protected)[-1].priority
            if lowest < PRIORITY_MIN:
                raise MustBeWalked
            self._at_best = costs_at_best(not self.free_to_go, lowest)
        return self._at_best

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


class DryRunOutcome(NamedTuple):
    """What a dry run of a row ends with. candidate: None where eviction does not help. costs: of
    it. least, most: what may be requested of each resource for this outcome."""

    candidate: PreemptionCandidate | None
    costs: tuple[float, ...]
    least: Amounts
    most: Amounts


class RowDryRuns:
    """The dry runs of one table, by row and priority of the preemptors. is_shared: False where one
    class reads them, for which nothing is kept."""

    def __init__(self, budgets: DisruptionBudgetIndex, importance: PodsByImportance) -> None:
        self._budgets = budgets
        self._importance = importance
        self._touched = TouchedRows(of_pods=True)
        self._made_for = NOTHING_KEPT
        self._rows: dict[int, dict[int, EvictablePods]] = {}
        self._rooms: dict[int, dict[tuple[int, Names], RowRoom]] = {}
        self._readers: WeakSet[object] = WeakSet()
        self.is_shared = False

    def add_reader(self, reader: object) -> None:
        """A class of preemptors begins to read; it does so until it is collected."""
        self._readers.add(reader)

    def follow(self, snapshot: Snapshot) -> None:
        """Forget what was kept of rows that have changed."""
        self.is_shared = len(self._readers) > 1
        if not self.is_shared:
            if self._made_for is not NOTHING_KEPT:
                self._made_for, self._rows, self._rooms = NOTHING_KEPT, {}, {}
            return
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
        if not self.is_shared:
            return make(row)
        rooms = self._rooms.get(row)
        if rooms is None:
            rooms = self._rooms[row] = {}
        found = rooms.get((priority, names))
        if found is None:
            found = rooms[priority, names] = make(row)
        return found

    def evictable(self, row: int, priority: int, pods: list[PodInfo]) -> EvictablePods:
        """The pods of a row that a preemptor of this priority may evict. pods: of the row, in the
        node's order."""
        if not self.is_shared:
            return self._evictable(row, priority, pods)
        by_priority = self._rows.get(row)
        if by_priority is None:
            by_priority = self._rows[row] = {}
        found = by_priority.get(priority)
        if found is None:
            found = by_priority[priority] = self._evictable(row, priority, pods)
        return found

    def _evictable(self, row: int, priority: int, pods: list[PodInfo]) -> EvictablePods:
        ranked = self._importance.of_row(row, pods)
        return EvictablePods(*self._by_budget([one for one in ranked if one.priority < priority]))

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
    evictable: EvictablePods, names: Names, wanted: Amounts, room: RowRoom, node_name: str
) -> PreemptionCandidate | None:
    """Evict all, and let stay who can, the protected first, for a pod that requests this much; None
    where eviction does not help. room: before evictions."""
    protected, free_to_go = evictable.protected, evictable.free_to_go
    every = (*protected, *free_to_go)
    n_slots = room.n_slots + len(every) - 1
    left: list[int] = []
    for name, amount, free in zip(names, wanted, room.free, strict=True):
        for one in every:
            free += one.requested.get(name, 0)
        if free < amount:
            return None
        left.append(free - amount)
    if n_slots < 0:
        return None
    victims: list[PodInfo] = []
    n_violations = 0
    for place, one in enumerate(every):
        requested = one.requested
        taken = [requested.get(name, 0) for name in names]
        if n_slots > 0 and all(map(le, taken, left)):
            n_slots -= 1
            left = list(map(sub, left, taken))
        else:
            victims.append(one.info)
            n_violations += place < len(protected)
    if not victims:
        return None
    if protected and free_to_go:
        victims.sort(key=pod_importance)
    return PreemptionCandidate(node_name, tuple(victims), n_violations)


def shared_dry_run(
    evictable: EvictablePods, names: Names, wanted: Amounts, room: RowRoom, node_name: str
) -> DryRunOutcome:
    """As `dry_run`, with the requests for which it ends so: which pods stay is the same."""
    found = dry_run(evictable, names, wanted, room, node_name)
    costs = () if found is None else candidate_costs(found)
    least, most = [0] * len(names), [ANY_MOST] * len(names)
    every = (*evictable.protected, *evictable.free_to_go)
    n_slots = room.n_slots + len(every) - 1
    offered = [
        free + sum(one.requested.get(name, 0) for one in every)
        for name, free in zip(names, room.free, strict=True)
    ]
    lacks = next((at for at, have in enumerate(offered) if have < wanted[at]), -1)
    if lacks >= 0:
        least[lacks] = offered[lacks] + 1
    if lacks >= 0 or n_slots < 0:
        return DryRunOutcome(found, costs, tuple(least), tuple(most))
    most = list(offered)
    left = list(map(sub, offered, wanted))
    for one in every:
        after = [have - one.requested.get(name, 0) for have, name in zip(left, names, strict=True)]
        lowest = min(after, default=0)
        if n_slots > 0 and lowest >= 0:
            n_slots -= 1
            left = after
            most = [min(a, b + c) for a, b, c in zip(most, wanted, after, strict=True)]
        elif n_slots > 0:
            # It goes as long as this resource lacks.
            at = after.index(lowest)
            least[at] = max(least[at], wanted[at] + lowest + 1)
    return DryRunOutcome(found, costs, tuple(least), tuple(most))
