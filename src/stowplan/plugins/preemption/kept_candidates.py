"""KeptCandidates: the verdicts and the dry runs of one class of preemptors, kept as rows change.

For pods whose filters count nothing but amounts, a row is evaluated by arithmetic. The candidates
stand in the order in which preemption chooses among them. A row that has changed stands where it
would at best; only where that is the first place its dry run is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import le
from typing import NamedTuple

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import Code, CycleState, Framework, NodeTable, Snapshot, Status
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.framework.node_to_status import NodeToStatus, as_refusal
from stowplan.framework.runtime.nominated_pods import (
    NodesWithNominatedPods,
    NominatedPodsByRow,
)
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.runtime.touched_rows import TouchedRows
from stowplan.framework.status import OK
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup
from stowplan.plugins.preemption.disruption_budgets import DisruptionBudgetIndex
from stowplan.plugins.preemption.dry_runs import DryRunResults, candidate_costs
from stowplan.plugins.preemption.ordered_candidates import OrderedCandidates
from stowplan.plugins.preemption.pods_by_importance import (
    AMOUNT_MAX,
    MustBeWalked,
    check_amounts,
)
from stowplan.plugins.preemption.ranked_pods import RankedPods
from stowplan.plugins.preemption.row_dry_runs import (
    EvictablePods,
    RowDryRuns,
    RowRoom,
    dry_run,
    shared_dry_run,
)
from stowplan.plugins.preemption.vector_dry_run import PotentialVictims
from stowplan.plugins.resources.fit import NodeResourcesFit

ROWS_ONE_BY_ONE_MAX = 64
"""With more changed rows than this, all of them are filtered together."""

REFILL_SHARE = 8
"""Where more than one of so many rows has changed, all candidates are sorted anew."""

DryRuns = Callable[[Pod, Snapshot, Ints, CycleState], DryRunResults]
"""Dry runs on rows, ascending, which count budgets and nominated pods."""

ONE_BY_ONE_MAX = 16
"""With more rows than this, dry runs are made together."""

PROTECTED_PRIORITY = 2**40
"""Above all priorities: of pods that take a budget below zero."""


class RowNumbers:
    """The verdict of each row as a number. numbers: int32 (n_rows,), 0 where the class passes.
    counts: rows by number."""

    def __init__(self, n_rows: int) -> None:
        self.numbers = np.zeros(n_rows, dtype=np.int32)
        self.statuses: list[Status] = [OK]
        self.counts = [n_rows]
        self._known: dict[Status, int] = {OK: 0}

    def number(self, status: Status) -> int:
        """The number of a status."""
        number = self._known.get(status)
        if number is None:
            number = self._known[status] = len(self.statuses)
            self.statuses.append(status)
            self.counts.append(0)
        return number

    def set(self, row: int, number: int) -> None:
        """A row has another verdict."""
        before = self.numbers.item(row)
        if before != number:
            self.counts[before] -= 1
            self.counts[number] += 1
            self.numbers[row] = number

    def set_all(self, rows: Ints, numbers: Ints) -> None:
        """These rows, each once, have these verdicts."""
        for place in np.flatnonzero(self.numbers[rows] != numbers).tolist():
            self.set(rows.item(place), numbers.item(place))

    def set_verdicts(self, rows: Ints, verdicts: NodeToStatus) -> None:
        """These rows have these verdicts."""
        self.numbers[rows] = 0
        for status, some in verdicts.refusals():
            self.numbers[some] = self.number(status)
        self.counts = np.bincount(self.numbers, minlength=len(self.statuses)).tolist()

    def is_preemptible(self, row: int) -> bool:
        """True where evictions may change the refusal of a row."""
        return self.statuses[self.numbers.item(row)].code == Code.UNSCHEDULABLE

    def preemptible(self) -> Ints:
        """int64: the rows whose refusal evictions may change."""
        may_change = np.array([status.code == Code.UNSCHEDULABLE for status in self.statuses])
        return np.flatnonzero(may_change[self.numbers])


class SharedRows(NamedTuple):
    """What all classes of preemptors read of the rows of a table."""

    budgets: DisruptionBudgetIndex
    ranked: RankedPods
    by_row: RowDryRuns


class KeptCandidates:
    """See `PreemptorSearch`."""

    def __init__(
        self,
        pod: Pod,
        framework: Framework,
        state: CycleState,
        fit: RegisteredPlugin,
        shared: SharedRows,
        dry_runs: DryRuns,
    ) -> None:
        """pod: one of the class, and the state that its PreFilters left. fit: NodeResourcesFit, the
        only filter by which pods on a node count."""
        self._framework = framework
        self._state = state
        self._fit = fit
        self._budgets, self._ranked = shared.budgets, shared.ranked
        self._by_row = shared.by_row
        shared.by_row.add_reader(self)
        self._dry_runs = dry_runs
        self._priority = pod.priority
        rule: NodeResourcesFit = fit.plugin
        self._rule = rule
        self._wanted = rule.wanted(pod)
        self._names = tuple(name for name, _ in self._wanted)
        self._amounts = tuple(amount for _, amount in self._wanted)
        self._pod = pod
        self._touched = TouchedRows(of_pods=True)
        self._counted_budgets: tuple[object, ...] | None = None
        self._shape = self._version = -1
        self._has_gangs = False
        self._snapshot: Snapshot | None = None
        self._found: dict[int, PreemptionCandidate] = {}
        self._changed: set[int] = set()
        self._is_filled = False
        self._codes: dict[int, int] = {}

    # What a caller asks.

    def follow(self, pod: Pod, snapshot: Snapshot) -> bool:
        """See `PreemptorSearch.follow`."""
        touched = self._touched.take(snapshot)
        self._budgets.follow(snapshot.object_store)
        is_begun = self._counted_budgets is self._budgets.budgets
        if touched is None or touched or not is_begun:
            self._by_row.follow(snapshot)
        nodes, self._snapshot = snapshot.nodes, snapshot
        if snapshot.object_store.version != self._version:
            self._version = snapshot.object_store.version
            self._has_gangs = any(True for _ in snapshot.object_store.all(PodGroup))
        if self._has_gangs:
            self._shape = -1
            return False
        try:
            if nodes.shape != self._shape or not is_begun:
                self._begin(pod, snapshot)
                touched = None
            if touched is None:
                self._filter_all(pod, snapshot)
            elif touched:
                rows = dict.fromkeys(touched)
                self._changed.update(rows)
                if len(rows) <= ROWS_ONE_BY_ONE_MAX:
                    for row in rows:
                        self._rows.set(row, self._verdict(row))
                else:
                    self._filter(np.array(list(rows), dtype=np.int64))
        except MustBeWalked:
            self._shape = -1
            return False
        return True

    @property
    def n_passing(self) -> int:
        """See `PreemptorSearch.n_passing`."""
        return self._rows.counts[0]

    def passes(self, row: int) -> bool:
        """See `PreemptorSearch.passes`."""
        return self._rows.numbers.item(row) == 0

    def passes_without(self, row: int, uid: str) -> bool | None:
        """See `PreemptorSearch.passes_without`."""
        try:
            return self._verdict(row, uid) == 0
        except MustBeWalked:
            return None

    def rejections(self) -> Sequence[tuple[Status, int]]:
        """See `PreemptorSearch.rejections`."""
        counted = zip(self._rows.statuses, self._rows.counts, strict=True)
        return [(status, n_rows) for status, n_rows in list(counted)[1:] if n_rows]

    def passing(self) -> Ints:
        """See `PreemptorSearch.passing`."""
        return np.flatnonzero(self._rows.numbers == 0)

    def cheapest(self, pod: Pod) -> PreemptionCandidate | None:
        """See `PreemptorSearch.cheapest`."""
        try:
            self._place_changed()
            n_most = 1
            while True:
                rows, are_known = self._candidates.first(n_most)
                if not rows:
                    return None
                if are_known:
                    (row,) = rows
                    return self._found[row] if row in self._found else self._dry_run(row)
                self._place(rows, pod)
                if len(rows) == n_most:
                    n_most *= 2
        except MustBeWalked:
            self._shape = -1
            return None

    # Evaluation.

    def _begin(self, pod: Pod, snapshot: Snapshot) -> None:
        """Other nodes or budgets: everything is evaluated again."""
        nodes = snapshot.nodes
        self._shape = nodes.shape
        self._counted_budgets = self._budgets.budgets
        self._rows = RowNumbers(nodes.n_nodes)
        self._codes = {0: 0}
        self._found = {}
        self._changed = set()
        self._is_filled = False
        self._candidates = OrderedCandidates(nodes.n_nodes)
        self._items = [nodes.item(name) for name, _ in self._wanted]
        self._slots_item = nodes.item("pods")
        members = self._framework.filters_by_row(self._state) or []
        place = members.index(self._fit)
        self._before = self._static_numbers(members[:place], pod, nodes)
        self._after = self._static_numbers(members[place + 1 :], pod, nodes)

    def _static_numbers(
        self, members: Sequence[RegisteredPlugin], pod: Pod, nodes: NodeTable
    ) -> Ints:
        """int64 (n_nodes,): the number of the first rejection by filters of the node only."""
        numbers = np.zeros(nodes.n_nodes, dtype=np.int64)
        for member in members:
            verdicts = member.verdicts(pod, nodes, nodes.all_rows, self._state)
            refused = (numbers == 0) & (verdicts.codes != 0)
            for code in np.unique(verdicts.codes[refused]).tolist():
                status = as_refusal(verdicts.explain(code).by(member.name))
                if not status.is_rejected:
                    raise MustBeWalked
                numbers[refused & (verdicts.codes == code)] = self._rows.number(status)
        return numbers

    def _filter_all(self, pod: Pod, snapshot: Snapshot) -> None:
        """Filter all rows; the one that the pod is nominated to by itself, as there the pod does
        not count itself."""
        nodes = snapshot.nodes
        verdicts = self._framework.run_filters(pod, snapshot, self._state)
        if verdicts.errors:
            raise MustBeWalked
        self._rows.set_verdicts(np.arange(nodes.n_nodes), verdicts)
        own = nodes.row(snapshot.nominations.node_of(pod.uid))
        if own >= 0:
            self._rows.set(own, self._verdict(own))
        self._is_filled = False

    def _filter(self, rows: Ints) -> None:
        """Filter these rows."""
        assert self._snapshot is not None
        nodes = self._snapshot.nodes
        nominated = NominatedPodsByRow.of(self._snapshot, self._priority)
        room = NodesWithNominatedPods(nodes, nominated)
        for name, _ in self._wanted:
            for amounts in (nodes.allocatable(name), nodes.requested(name)):
                check_amounts(*_ends(amounts[rows]))
            check_amounts(*_ends(nominated.requested(name)[rows]))
        codes = self._fit.call("filter_column", self._pod, room, rows, self._state)
        numbers = np.zeros(rows.shape[0], dtype=np.int64)
        for code in np.unique(codes).tolist():
            numbers[codes == code] = self._number_of(code)
        before, after = self._before[rows], self._after[rows]
        numbers = np.where(before > 0, before, np.where(numbers > 0, numbers, after))
        self._rows.set_all(rows, numbers)

    def _place_changed(self) -> None:
        """Put the rows that have changed where they are at best."""
        assert self._snapshot is not None
        nodes, candidates, found = self._snapshot.nodes, self._candidates, self._found
        is_shared = self._by_row.is_shared
        if not self._is_filled or REFILL_SHARE * len(self._changed) > nodes.n_nodes:
            self._fill()
            return
        for row in self._changed:
            candidates.drop(row)
            found.pop(row, None)
            if not self._rows.is_preemptible(row):
                continue
            evictable = self._evictable(row)
            if not evictable or self._before.item(row) or self._after.item(row):
                continue
            at_best, rank = evictable.at_best, nodes.rank.item(row)
            known = evictable.known(self._names, self._amounts) if is_shared else None
            if known is None:
                candidates.put(row, at_best, rank, are_known=False)
            elif known.candidate is not None:
                found[row] = known.candidate
                candidates.put(row, known.costs, rank, are_known=True)
        self._changed.clear()

    def _fill(self) -> None:
        """Put all rows where they are at best."""
        assert self._snapshot is not None
        nodes, ranked = self._snapshot.nodes, self._ranked
        rows = self._rows.preemptible()
        ranked.follow(nodes, rows)
        ranked.group_by(self._budgets.cover, self._budgets.grouping)
        if ranked.has_out_of_range_priority:
            raise MustBeWalked
        n_below = ranked.below(rows, self._priority)
        rows, n_below = rows[n_below > 0], n_below[n_below > 0]
        evictable = PotentialVictims(ranked, rows, n_below, self._budgets)
        priority = ranked.priority[evictable.slots]
        free = np.where(evictable.is_protected, PROTECTED_PRIORITY, priority)
        lowest, lowest_free = (
            np.minimum.reduceat(some, evictable.first) if rows.shape[0] else priority
            for some in (priority, free)
        )
        violates = lowest_free == PROTECTED_PRIORITY
        lowest = np.where(violates, lowest, lowest_free)
        self._candidates.fill(rows, violates.astype(np.int64), lowest, nodes.rank[rows])
        self._is_filled, self._found = True, {}
        self._changed.clear()

    def _place(self, rows: list[int], pod: Pod) -> None:
        """Put rows where they belong."""
        assert self._snapshot is not None
        rank, candidates = self._snapshot.nodes.rank, self._candidates
        for row in rows:
            candidates.drop(row)
        if len(rows) > ONE_BY_ONE_MAX:
            every = np.array(sorted(rows), dtype=np.int64)
            runs = self._dry_runs(pod, self._snapshot, every, self._state)
            helped = runs.candidates_in(every)
            costs = runs.costs[:, helped].T.tolist()
            for row, some in zip(helped.tolist(), costs, strict=True):
                candidates.put(row, some, rank.item(row), are_known=True)
            return
        for row in rows:
            found = self._dry_run(row)
            if found is not None:
                self._found[row] = found
                candidates.put(row, candidate_costs(found), rank.item(row), are_known=True)

    def _verdict(self, row: int, uid: str = "") -> int:
        """The number of the verdict of a row. uid: of the pod, where it may be nominated there."""
        before: int = self._before.item(row)
        if before:
            return before
        room = self._room(row, uid) if uid else self._shared_room(row)
        code = 0
        if room.n_slots <= 0 or not all(map(le, self._amounts, room.free)):
            amounts = zip(room.offered, room.free, strict=True)
            code = self._rule.code_of_row(self._wanted, room.n_slots, amounts)
        after: int = self._after.item(row)
        return self._number_of(code) or after

    def _number_of(self, code: int) -> int:
        """The number of a code of NodeResourcesFit."""
        number = self._codes.get(code)
        if number is None:
            assert self._snapshot is not None
            nodes = self._snapshot.nodes
            status = self._fit.call("filter_status", code, self._pod, nodes, self._state)
            number = self._codes[code] = self._rows.number(as_refusal(status.by(self._fit.name)))
        return number

    def _shared_room(self, row: int) -> RowRoom:
        """What is free on a row, as for other classes of the priority."""
        if not self._by_row.is_shared:
            return self._room(row)
        return self._by_row.room(row, self._priority, self._names, self._room)

    def _room(self, row: int, uid: str = "") -> RowRoom:
        """What is free on a row beside the nominated pods, but for the one with this uid."""
        assert self._snapshot is not None
        nodes, nominations = self._snapshot.nodes, self._snapshot.nominations
        allocatable, requested, _, pod_count = nodes.amounts
        n_slots = allocatable.item(self._slots_item, row) - pod_count.item(row)
        has: list[int] = []
        left: list[int] = []
        reserved = [
            info.footprint.requested
            for info in nominations.on(nodes.names[row])
            if info.pod.priority >= self._priority and info.uid != uid
        ]
        for (name, _), item in zip(self._wanted, self._items, strict=True):
            offered, held = allocatable.item(item, row), requested.item(item, row)
            check_amounts(offered, held)
            free = offered - held
            for requests in reserved:
                amount = requests.get(name, 0)
                check_amounts(amount)
                free -= amount
            has.append(offered)
            left.append(free)
        return RowRoom(n_slots - len(reserved), tuple(left), tuple(has))

    def _evictable(self, row: int) -> EvictablePods:
        """The pods of a row that may be evicted."""
        assert self._snapshot is not None
        return self._by_row.evictable(row, self._priority, self._snapshot.nodes.pods[row])

    def _dry_run(self, row: int) -> PreemptionCandidate | None:
        """The victims of a row, None where eviction does not help."""
        assert self._snapshot is not None
        if self._before.item(row) or self._after.item(row):
            return None
        evictable = self._evictable(row)
        if not evictable:
            return None
        name = self._snapshot.nodes.names[row]
        if not self._by_row.is_shared:
            return dry_run(evictable, self._names, self._amounts, self._room(row), name)
        known = evictable.known(self._names, self._amounts)
        if known is None:
            room = self._shared_room(row)
            known = shared_dry_run(evictable, self._names, self._amounts, room, name)
            evictable.keep(self._names, known)
        return known.candidate


def _ends(amounts: Ints) -> tuple[int, int]:
    return int(amounts.min(initial=0)), int(amounts.max(initial=0))


def search_of(
    pod: Pod,
    framework: Framework,
    state: CycleState,
    shared: SharedRows,
    dry_runs: Callable[[Hashable], DryRuns],
) -> KeptCandidates | None:
    """A search for pods that get the verdicts of this one; see `SearchesForPreemptors`.

    dry_runs: of the class with this key.
    """
    members = framework.filters_by_row(state)
    key = framework.row_key(pod, state)
    if members is None or key is None or framework.profile.checks_all_filters:
        return None
    others = [m for m in members if not m.node_only and m.name not in state.row_signatures]
    if len(others) != 1 or type(others[0].plugin) is not NodeResourcesFit:
        return None
    (fit,) = others
    rule: NodeResourcesFit = fit.plugin
    wanted = rule.wanted(pod)
    if rule.may_leave_to_devices(wanted) or any(amount > AMOUNT_MAX for _, amount in wanted):
        return None
    return KeptCandidates(pod, framework, state, fit, shared, dry_runs(key))
