"""PriorityRows: what preemptors of one priority read of all rows, kept as rows change.

Preemptors of a priority that request the same resources count the same nominated pods and may
evict the same pods, whatever amounts they request. So what is free on a row, which of its pods may
go, and what evictions there cost at best is found once for all of their classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.journal import Journal
from stowplan.framework import Snapshot
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.framework.runtime.nominated_pods import NominatedPodsByRow
from stowplan.framework.runtime.touched_rows import TouchedRows
from stowplan.plugins.preemption.disruption_budgets import DisruptionBudgetIndex
from stowplan.plugins.preemption.dry_runs import PRIORITY_OFFSET
from stowplan.plugins.preemption.ordered_candidates import NOT_OPEN, key_at_best, keys_at_best
from stowplan.plugins.preemption.pods_by_importance import (
    ImportantPod,
    MustBeWalked,
    PodsByImportance,
    check_amounts,
)
from stowplan.plugins.preemption.ranked_pods import RankedPods
from stowplan.plugins.preemption.row_dry_runs import (
    Amounts,
    EvictablePods,
    Names,
    RowRoom,
    dry_run,
    shared_dry_run,
)
from stowplan.plugins.preemption.vector_dry_run import PotentialVictims

ROWS_ONE_BY_ONE_MAX = 32
"""With more changed rows than this, they are evaluated together."""

PRIORITY_MIN, PRIORITY_MAX = -PRIORITY_OFFSET, PRIORITY_OFFSET - 1

NOT_BEGUN: tuple[object, int] = None, -1
"""The budgets and the shape for which rows are known, where none are."""


class PodsOfTable:
    """The pods of one table and the budgets that cover them, for preemptors of all priorities."""

    def __init__(self, budgets: DisruptionBudgetIndex, ranked: RankedPods) -> None:
        self.budgets = budgets
        self.ranked = ranked
        self.importance = PodsByImportance(budgets)
        self._rows: WeakValueDictionary[tuple[int, Names], PriorityRows] = WeakValueDictionary()

    def rows_for(self, priority: int, names: Names) -> PriorityRows:
        """The rows for preemptors of a priority that request these resources; kept while a class
        holds them."""
        found = self._rows.get((priority, names))
        if found is None:
            found = self._rows[priority, names] = PriorityRows(self, priority, names)
        return found


class PriorityRows:
    """Rows as preemptors of one priority find them, nominated pods counted.

    epoch: changes when all rows are found anew. epoch_without_plans: in which preemptors cannot be
    planned together. changes: of rows. amounts: int64
    (2 n_resources + 1, n_rows), free pod slots, then of each requested resource what is free, then
    of each what the node has, base units. keys: int64 (n_rows,), see `key_at_best`, valid after
    `find_keys`. lowest: no pod that may go has had a lower priority. names: of the resources.
    """

    def __init__(self, pods: PodsOfTable, priority: int, names: Names) -> None:
        self._pods = pods
        self._priority = priority
        self.names = names
        self._touched = TouchedRows(of_pods=True)
        self._made_for = NOT_BEGUN
        self._snapshot: Snapshot | None = None
        self._evictable: dict[int, EvictablePods] = {}
        self._classes: WeakSet[object] = WeakSet()
        # At least as much is requested by every class.
        self._least: Amounts = ()
        self._rows_without_key: set[int] = set()
        self._has_keys = False
        self._is_shared = False
        self.epoch = 0
        self.epoch_without_plans = -1
        self.changes = Journal()
        self.lowest = PRIORITY_MAX
        self.keys: Ints = np.zeros(0, dtype=np.int64)
        self._make_room(0)

    def join(self, one: object, amounts: Amounts) -> None:
        """A class reads the rows from now on, until it is collected. amounts: what it requests."""
        self._classes.add(one)
        if len(self._classes) == 2:
            self._is_shared, self._has_keys = True, False
        if not self._least:
            self._least = amounts
        elif any(a < b for a, b in zip(amounts, self._least, strict=True)):
            # Somewhat less, so that keys are not found anew for each of many classes.
            self._least = tuple(
                min(b, a * 3 // 4 if a < b else b)
                for a, b in zip(amounts, self._least, strict=True)
            )
            self._has_keys = False

    def follow(self, snapshot: Snapshot) -> None:
        """Take over what has changed. Raises MustBeWalked."""
        touched, nodes = self._touched.take(snapshot), snapshot.nodes
        budgets, shape = self._made_for
        self._snapshot = snapshot
        is_begun = budgets is self._pods.budgets.budgets and shape == nodes.shape
        if is_begun and touched is not None and not touched:
            return
        self._made_for = NOT_BEGUN
        # Classes may have been collected.
        self._is_shared = len(self._classes) > 1
        if touched is None or not is_begun:
            self._begin(snapshot)
        else:
            self.changes.touch_all(touched)
            self.changes.trim(nodes.n_nodes)
            self._rows_without_key.update(touched)
            for row in touched:
                self._evictable.pop(row, None)
            if len(touched) <= ROWS_ONE_BY_ONE_MAX:
                for row in touched:
                    self._read_row(row)
            else:
                self._read_rows(np.array(touched, dtype=np.int64))
        self._made_for = self._pods.budgets.budgets, nodes.shape

    def _begin(self, snapshot: Snapshot) -> None:
        n_nodes, nodes = snapshot.nodes.n_nodes, snapshot.nodes
        self.epoch += 1
        self._items = [nodes.item(name) for name in self.names]
        self._slots_item = nodes.item("pods")
        self._evictable, self._has_keys, self.lowest = {}, False, PRIORITY_MAX
        self._make_room(n_nodes)
        self.keys = np.full(n_nodes, NOT_OPEN, dtype=np.int64)
        self._read_rows(np.arange(n_nodes))

    # What is free.

    def _make_room(self, n_rows: int) -> None:
        n_names = len(self.names)
        self.amounts: Ints = np.zeros((2 * n_names + 1, n_rows), dtype=np.int64)
        self._n_slots: Ints = self.amounts[0]
        self._free: Ints = self.amounts[1 : n_names + 1]
        self._offered: Ints = self.amounts[n_names + 1 :]

    def _read_rows(self, rows: Ints) -> None:
        assert self._snapshot is not None
        allocatable, requested, _, pod_count = self._snapshot.nodes.amounts
        nominated = NominatedPodsByRow.of(self._snapshot, self._priority)
        slots = allocatable[self._slots_item, rows]
        self._n_slots[rows] = slots - pod_count[rows] - nominated.pod_count[rows]
        for place, (name, item) in enumerate(zip(self.names, self._items, strict=True)):
            offered, held = allocatable[item, rows], requested[item, rows]
            reserved = nominated.requested(name)[rows]
            for amounts in (offered, held, reserved):
                check_amounts(int(amounts.min(initial=0)), int(amounts.max(initial=0)))
            self._offered[place, rows] = offered
            self._free[place, rows] = offered - held - reserved

    def _read_row(self, row: int) -> None:
        room = self.room_without(row, "")
        self.amounts[:, row] = (room.n_slots, *room.free, *room.offered)

    def room_without(self, row: int, uid: str) -> RowRoom:
        """What is free on a row where the nominated pod with this uid does not count. Raises
        MustBeWalked."""
        assert self._snapshot is not None
        nodes, nominations = self._snapshot.nodes, self._snapshot.nominations
        allocatable, requested, _, pod_count = nodes.amounts
        has: list[int] = []
        left: list[int] = []
        reserved = [
            info.footprint.requested
            for info in nominations.on(nodes.names[row])
            if info.pod.priority >= self._priority and info.uid != uid
        ]
        for name, item in zip(self.names, self._items, strict=True):
            offered, held = allocatable.item(item, row), requested.item(item, row)
            check_amounts(offered, held)
            free = offered - held
            for requests in reserved:
                amount = requests.get(name, 0)
                check_amounts(amount)
                free -= amount
            has.append(offered)
            left.append(free)
        n_slots = allocatable.item(self._slots_item, row) - pod_count.item(row) - len(reserved)
        return RowRoom(n_slots, tuple(left), tuple(has))

    def _room(self, row: int) -> RowRoom:
        n_slots, *amounts = self.amounts[:, row].tolist()
        n_names = len(self.names)
        return RowRoom(n_slots, tuple(amounts[:n_names]), tuple(amounts[n_names:]))

    # What evictions cost at best.

    def find_keys(self) -> None:
        """Bring `keys` up to date. Raises MustBeWalked."""
        assert self._snapshot is not None
        rows = self._rows_without_key
        if not self._has_keys:
            self.keys[:] = NOT_OPEN
            self._find_keys(np.arange(self.keys.shape[0]))
            self._has_keys = True
        elif len(rows) > ROWS_ONE_BY_ONE_MAX:
            every = np.array(list(rows), dtype=np.int64)
            self.keys[every] = NOT_OPEN
            self._find_keys(every)
        else:
            rank = self._snapshot.nodes.rank
            for row in rows:
                self.keys[row] = self._key(row, rank.item(row))
        rows.clear()

    def _least_requests(self) -> list[tuple[str, int]]:
        """What every class requests at least; empty for one class, which knows the dry runs of rows
        where one victim is not enough."""
        return list(zip(self.names, self._least, strict=True)) if self._is_shared else []

    def _key(self, row: int, rank: int) -> int:
        evictable = self.evictable(row)
        n_pods = len(evictable)
        if not n_pods:
            return NOT_OPEN
        every = evictable.every
        n_victims = max(1, 1 - self._n_slots.item(row))
        for place, (name, least) in enumerate(self._least_requests()):
            lacks = least - self._free.item(place, row)
            if lacks > 0:
                largest = max([one.requested.get(name, 0) for one in every])
                n_victims = max(n_victims, -(-lacks // largest) if largest else n_pods + 1)
        if n_victims > n_pods:
            return NOT_OPEN
        lowest = min(every[-1].priority, every[len(evictable.protected) - 1].priority)
        if lowest < PRIORITY_MIN or every[0].priority > PRIORITY_MAX:
            raise MustBeWalked
        self.lowest = min(self.lowest, lowest)
        n_free = len(evictable.free_to_go)
        if n_victims <= n_free:
            return key_at_best(0, every[-n_victims].priority, n_victims, rank)
        return key_at_best(n_victims - n_free, lowest, n_victims, rank)

    def _find_keys(self, rows: Ints) -> None:
        """`_key` of many rows, whose keys are NOT_OPEN."""
        assert self._snapshot is not None
        ranked, rank = self._pods.ranked, self._snapshot.nodes.rank
        rows, victims = self.potential_victims(rows)
        if victims is None:
            return
        n_below = victims.length
        n_victims = np.maximum(1, 1 - self._n_slots[rows])
        for place, (name, least) in enumerate(self._least_requests()):
            if ranked.may_overflow(name):
                continue
            lacks = least - self._free[place, rows]
            largest = np.maximum.reduceat(ranked.amounts(name)[victims.slots], victims.first)
            needed = np.where(largest > 0, -(-lacks // np.maximum(largest, 1)), n_below + 1)
            n_victims = np.maximum(n_victims, np.where(lacks > 0, needed, 0))
        n_free = n_below - np.add.reduceat(victims.is_protected.astype(np.int64), victims.first)
        priority = ranked.priority[victims.slots]
        lowest = np.minimum.reduceat(priority, victims.first)
        self.lowest = min(self.lowest, int(lowest.min()))
        at_last = victims.first + n_below - np.minimum(n_victims, n_below)
        is_free = n_victims <= n_free
        keys = keys_at_best(
            np.where(is_free, 0, n_victims - n_free),
            np.where(is_free, priority[at_last], lowest),
            n_victims,
            rank[rows],
        )
        self.keys[rows] = np.where(n_victims <= n_below, keys, NOT_OPEN)

    # Plans, see `runs.preemption_plan`.

    @property
    def ranked(self) -> RankedPods:
        """The pods of the table, as of the last `potential_victims`."""
        return self._pods.ranked

    @property
    def rank(self) -> Ints:
        """int64 (n_rows,): position of each row in the snapshot's order."""
        assert self._snapshot is not None
        return self._snapshot.nodes.rank

    @property
    def node_names(self) -> Sequence[str]:
        """The names of the rows."""
        assert self._snapshot is not None
        return self._snapshot.nodes.names

    def potential_victims(self, rows: Ints) -> tuple[Ints, PotentialVictims | None]:
        """Those of `rows` with pods that may go, and these pods; None without any. Raises
        MustBeWalked."""
        assert self._snapshot is not None
        pods, ranked = self._pods, self._pods.ranked
        ranked.follow(self._snapshot.nodes, rows)
        ranked.group_by(pods.budgets.cover, pods.budgets.grouping)
        if ranked.has_out_of_range_priority:
            raise MustBeWalked
        n_below = ranked.below(rows, self._priority)
        rows, n_below = rows[n_below > 0], n_below[n_below > 0]
        if not rows.shape[0]:
            return rows, None
        return rows, PotentialVictims(ranked, rows, n_below, pods.budgets)

    # Dry runs.

    def evictable(self, row: int) -> EvictablePods:
        """The pods of a row that may be evicted. Raises MustBeWalked."""
        found = self._evictable.get(row)
        if found is None:
            assert self._snapshot is not None
            ranked = self._pods.importance.of_row(row, self._snapshot.nodes.pods[row])
            below = [one for one in ranked if one.priority < self._priority]
            found = self._evictable[row] = EvictablePods(*self._by_budget(below))
        return found

    def _by_budget(
        self, evictable: list[ImportantPod]
    ) -> tuple[list[ImportantPod], list[ImportantPod]]:
        """As `filter_pods_with_pdb_violation`."""
        allowed = self._pods.budgets.allowed
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

    def dry_run(self, row: int, amounts: Amounts) -> PreemptionCandidate | None:
        """The victims of a row for a pod that requests this much; None where eviction does not
        help. Raises MustBeWalked."""
        assert self._snapshot is not None
        evictable = self.evictable(row)
        if not evictable:
            return None
        name = self._snapshot.nodes.names[row]
        if not self._is_shared:
            return dry_run(evictable, self.names, amounts, self._room(row), name)
        known = evictable.known(amounts)
        if known is None:
            known = shared_dry_run(evictable, self.names, amounts, self._room(row), name)
            evictable.keep(known)
        return known.candidate
