"""KeptCandidates: the verdicts and the dry runs of one class of preemptors, kept as rows change.

For pods whose filters count nothing but amounts, a row is evaluated by arithmetic. The candidates
stand in the order in which preemption chooses among them. A row that has changed stands where it
would at best; only where that is the first place its dry run is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from heapq import heapify, heappop, heappush
from math import inf

import numpy as np

from stowplan.columns import PodInfo
from stowplan.columns.array_types import Floats, Ints
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
from stowplan.plugins.preemption.dry_runs import PRIORITY_OFFSET, DryRunResults, candidate_costs
from stowplan.plugins.preemption.ranked_pods import pod_importance
from stowplan.plugins.resources.fit import NodeResourcesFit

ROWS_ONE_BY_ONE_MAX = 8
"""With more changed rows than this, all of them are filtered together."""

REFILL_SHARE = 8
"""Where more than one of so many rows has changed, all candidates are sorted anew."""

AMOUNT_MAX = 2**50
PODS_MAX = 512
"""Amounts and numbers of pods whose sums stay far from 2**63."""

DryRuns = Callable[[Pod, Snapshot, Ints, CycleState], DryRunResults]
"""Dry runs on rows, ascending, which count budgets and nominated pods."""

Entry = tuple[float, ...]
"""The costs of a candidate, the rank of its row (-1 for costs that it has at best), the row, and
the stamp of its evaluation."""

PRIORITY_MIN = -PRIORITY_OFFSET


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


class OrderedCandidates:
    """Candidates in the order of choice: those of the last full evaluation, sorted, and a heap of
    those evaluated since. An entry with an older stamp than its row does not count."""

    def __init__(self, n_rows: int) -> None:
        self._stamps: Ints = np.zeros(n_rows, dtype=np.int64)
        self._sorted: Ints = np.zeros(0, dtype=np.int64)
        self._next = 0
        self._costs: Floats = np.zeros((0, 0), dtype=np.float64)
        self._ranks: Ints = np.zeros(0, dtype=np.int64)
        self._heap: list[Entry] = []

    def fill(self, rows: Ints, costs: Floats, ranks: Ints) -> None:
        """Begin with these candidates. costs: (n_criteria, n_rows), ranks: (n_rows,), both of these
        rows."""
        order = np.lexsort((ranks, *costs[::-1]))
        self._stamps[:] = 0
        self._sorted, self._next, self._heap = rows[order], 0, []
        self._costs, self._ranks = costs[:, order], ranks[order]

    def drop(self, row: int) -> int:
        """What was known of a row no longer counts; returns the stamp of the next evaluation."""
        stamp = self._stamps.item(row) + 1
        self._stamps[row] = stamp
        return stamp

    def put(self, row: int, costs: Sequence[float], rank: int, stamp: int) -> None:
        """A row is a candidate at this cost."""
        heappush(self._heap, (*costs, rank, row, stamp))
        if len(self._heap) > 4 * self._stamps.shape[0] + 64:
            self._heap = [one for one in self._heap if self._is_current(one)]
            heapify(self._heap)

    def _is_current(self, entry: Entry) -> bool:
        return bool(self._stamps.item(int(entry[-2])) == entry[-1])

    def first(self) -> tuple[int, bool]:
        """The row that is chosen, -1 without candidates; and whether its costs are known."""
        heap, stamps, ordered = self._heap, self._stamps, self._sorted
        while heap and not self._is_current(heap[0]):
            heappop(heap)
        at, n_sorted = self._next, ordered.shape[0]
        while at < n_sorted and stamps.item(ordered.item(at)):
            at += 1
        self._next = at
        row = ordered.item(at) if at < n_sorted else -1
        if heap and (
            row < 0 or heap[0] < (*self._costs[:, at].tolist(), self._ranks.item(at), row, 0)
        ):
            return int(heap[0][-2]), heap[0][-3] >= 0
        return row, True


class MustBeWalked(Exception):
    """Sums of amounts may exceed 64 bits, or a filter fails."""


class KeptCandidates:
    """See `PreemptorSearch`."""

    def __init__(
        self,
        pod: Pod,
        framework: Framework,
        state: CycleState,
        fit: RegisteredPlugin,
        budgets: DisruptionBudgetIndex,
        dry_runs: DryRuns,
    ) -> None:
        """pod: one of the class, and the state that its PreFilters left. fit: NodeResourcesFit, the
        only filter by which pods on a node count."""
        self._framework = framework
        self._state = state
        self._fit = fit
        self._budgets = budgets
        self._dry_runs = dry_runs
        self._priority = pod.priority
        rule: NodeResourcesFit = fit.plugin
        self._rule = rule
        self._wanted = rule.wanted(pod)
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
        nodes, self._snapshot = snapshot.nodes, snapshot
        if snapshot.object_store.version != self._version:
            self._version = snapshot.object_store.version
            self._has_gangs = any(True for _ in snapshot.object_store.all(PodGroup))
        if self._has_gangs:
            self._shape = -1
            return False
        try:
            if nodes.shape != self._shape or self._counted_budgets is not self._budgets.budgets:
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
            self._place_changed(pod)
            while True:
                row, is_known = self._candidates.first()
                if row < 0:
                    return None
                if not is_known:
                    self._place(row)
                elif row in self._found:
                    return self._found[row]
                else:
                    return self._dry_run(row)
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
        """int64 (n_nodes,): the number of the first rejection by filters that read the node only."""
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
                _check(*_ends(amounts[rows]))
            _check(*_ends(nominated.requested(name)[rows]))
        codes = self._fit.call("filter_column", self._pod, room, rows, self._state)
        numbers = np.zeros(rows.shape[0], dtype=np.int64)
        for code in np.unique(codes).tolist():
            numbers[codes == code] = self._number_of(code)
        before, after = self._before[rows], self._after[rows]
        numbers = np.where(before > 0, before, np.where(numbers > 0, numbers, after))
        self._rows.set_all(rows, numbers)

    def _place_changed(self, pod: Pod) -> None:
        """Put the rows that have changed where they are at best."""
        assert self._snapshot is not None
        nodes, candidates = self._snapshot.nodes, self._candidates
        if not self._is_filled or REFILL_SHARE * len(self._changed) > nodes.n_nodes:
            rows = self._rows.preemptible()
            runs = self._dry_runs(pod, self._snapshot, rows, self._state)
            helped = runs.candidates_in(rows)
            candidates.fill(helped, runs.costs[:, helped], nodes.rank[helped])
            self._is_filled, self._found = True, {}
            self._changed.clear()
            return
        for row in self._changed:
            stamp = candidates.drop(row)
            self._found.pop(row, None)
            if not self._rows.is_preemptible(row):
                continue
            found = [info.footprint.priority for info in nodes.pods[row]]
            lowest = min(found, default=self._priority)
            if lowest < self._priority:
                if lowest < PRIORITY_MIN:
                    raise MustBeWalked
                candidates.put(row, (0, lowest, lowest + PRIORITY_OFFSET, 1, -inf), -1, stamp)
        self._changed.clear()

    def _place(self, row: int) -> None:
        """Put a row where it belongs."""
        assert self._snapshot is not None
        stamp = self._candidates.drop(row)
        found = self._dry_run(row)
        if found is not None:
            self._found[row] = found
            rank = self._snapshot.nodes.rank.item(row)
            self._candidates.put(row, candidate_costs(found), rank, stamp)

    def _verdict(self, row: int, uid: str = "") -> int:
        """The number of the verdict of a row. uid: of the pod, where it may be nominated there."""
        before: int = self._before.item(row)
        if before:
            return before
        n_slots, amounts = self._room(row, uid)
        code = self._rule.code_of_row(self._wanted, n_slots, amounts)
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

    def _room(self, row: int, uid: str = "") -> tuple[int, list[tuple[int, int]]]:
        """(free pod slots, (allocatable, free) per wanted resource) beside the nominated pods."""
        assert self._snapshot is not None
        nodes, nominations = self._snapshot.nodes, self._snapshot.nominations
        allocatable, requested, _, pod_count = nodes.amounts
        n_slots = allocatable.item(self._slots_item, row) - pod_count.item(row)
        amounts = []
        reserved = [
            info.footprint.requested
            for info in nominations.on(nodes.names[row])
            if info.pod.priority >= self._priority and info.uid != uid
        ]
        for (name, _), item in zip(self._wanted, self._items, strict=True):
            offered, held = allocatable.item(item, row), requested.item(item, row)
            _check(offered, held)
            free = offered - held
            for requests in reserved:
                amount = requests.get(name, 0)
                _check(amount)
                free -= amount
            amounts.append((offered, free))
        return n_slots - len(reserved), amounts

    def _dry_run(self, row: int) -> PreemptionCandidate | None:
        """The victims of a row, None where eviction does not help."""
        assert self._snapshot is not None
        nodes, priority = self._snapshot.nodes, self._priority
        evictable = [info for info in nodes.pods[row] if info.footprint.priority < priority]
        if not evictable or self._before.item(row) or self._after.item(row):
            return None
        n_slots, amounts = self._room(row)
        if len(nodes.pods[row]) > PODS_MAX:
            raise MustBeWalked
        left = []
        for (name, wanted), (_, free) in zip(self._wanted, amounts, strict=True):
            for info in evictable:
                amount = info.footprint.requested.get(name, 0)
                _check(amount)
                free += amount
            left.append([name, free - wanted])
        n_slots += len(evictable) - 1
        if n_slots < 0 or any(free < 0 for _, free in left):
            return None
        evictable.sort(key=pod_importance)
        protected, free_to_go = self._by_budget(evictable)
        victims, n_violations = [], 0
        for place, info in enumerate((*protected, *free_to_go)):
            requests = info.footprint.requested
            if n_slots > 0 and all(requests.get(name, 0) <= amount for name, amount in left):
                n_slots -= 1
                for one in left:
                    one[1] -= requests.get(one[0], 0)
            else:
                victims.append(info)
                n_violations += place < len(protected)
        if not victims:
            return None
        if protected and free_to_go:
            victims.sort(key=pod_importance)
        return PreemptionCandidate(nodes.names[row], tuple(victims), n_violations)

    def _by_budget(self, evictable: list[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """As `filter_pods_with_pdb_violation`."""
        if not self._budgets.budgets:
            return [], evictable
        taken: dict[int, int] = {}
        protected: list[PodInfo] = []
        free_to_go: list[PodInfo] = []
        for info in evictable:
            violates = False
            for budget in self._budgets.covering(info.pod):
                taken[budget] = n_taken = taken.get(budget, 0) + 1
                violates |= n_taken > self._budgets.allowed.item(budget)
            (protected if violates else free_to_go).append(info)
        return protected, free_to_go


def _ends(amounts: Ints) -> tuple[int, int]:
    return int(amounts.min(initial=0)), int(amounts.max(initial=0))


def _check(*amounts: int) -> None:
    if not all(0 <= amount <= AMOUNT_MAX for amount in amounts):
        raise MustBeWalked


def search_of(
    pod: Pod,
    framework: Framework,
    state: CycleState,
    budgets: DisruptionBudgetIndex,
    dry_runs: Callable[[Hashable], DryRuns],
) -> KeptCandidates | None:
    """A search for pods that get the verdicts of this one; see `SearchesForPreemptors`. dry_runs: of
    the class with this key."""
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
    return KeptCandidates(pod, framework, state, fit, budgets, dry_runs(key))
