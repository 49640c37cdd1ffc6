"""KeptCandidates: the verdicts and the dry runs of one class of preemptors, kept as rows change.

For pods whose filters count nothing but amounts, a row is evaluated by arithmetic. The candidates
stand in the order in which preemption chooses among them. A row that has changed stands where it
would at best; only where that is the first place its dry run is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import le
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import PodInfo
from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import Code, CycleState, Framework, NodeTable, Snapshot, Status
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.framework.deciders.preemptor_search import (
    PlannedPreemption,
    PreemptionKernel,
    PreemptorSearch,
    Rejections,
)
from stowplan.framework.node_to_status import as_refusal
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.status import OK
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup
from stowplan.plugins.preemption.dry_runs import DryRunResults, candidate_costs
from stowplan.plugins.preemption.ordered_candidates import (
    NOT_OPEN,
    RANKS_MAX,
    OrderedCandidates,
)
from stowplan.plugins.preemption.pods_by_importance import AMOUNT_MAX, MustBeWalked
from stowplan.plugins.preemption.priority_rows import PRIORITY_MAX, PRIORITY_MIN, PodsOfTable
from stowplan.plugins.preemption.runs.preemption_plan import PlannedClass, plan
from stowplan.plugins.resources.fit import NodeResourcesFit

DryRuns = Callable[[Pod, Snapshot, Ints, CycleState], DryRunResults]
"""Dry runs on rows, ascending, which count budgets and nominated pods."""

ROWS_ONE_BY_ONE_MAX = 4
"""With more changed rows than this, they are filtered together."""

ONE_BY_ONE_MAX = 16
"""With more rows than this, dry runs are made together."""

RESOURCES_MAX = 6
"""A class that requests more resources is not kept: there is a number for each set of them."""

NO_NUMBERS: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
"""The verdicts by filters of the node only, where these reject no row."""


class RowNumbers:
    """The verdict of each row as a number. numbers: int32 (n_rows,), 0 where the class passes.
    counts: rows by number."""

    def __init__(self, n_rows: int) -> None:
        self.numbers = np.zeros(n_rows, dtype=np.int32)
        self.statuses: list[Status] = [OK]
        self.counts = [n_rows]
        self._known: dict[Status, int] = {OK: 0}
        self._may_change = [False]

    def number(self, status: Status) -> int:
        """The number of a status."""
        number = self._known.get(status)
        if number is None:
            number = self._known[status] = len(self.statuses)
            self.statuses.append(status)
            self._may_change.append(status.code == Code.UNSCHEDULABLE)
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
        before = self.numbers[rows]
        places = np.flatnonzero(before != numbers)
        if not places.shape[0]:
            return
        self.numbers[rows] = numbers
        counts = self.counts
        for old, new in zip(before[places].tolist(), numbers[places].tolist(), strict=True):
            counts[old] -= 1
            counts[new] += 1

    def set_numbers(self, numbers: Ints) -> None:
        """All rows have these verdicts."""
        self.numbers[:] = numbers
        self.counts = np.bincount(self.numbers, minlength=len(self.statuses)).tolist()

    def is_preemptible(self, row: int) -> bool:
        """True where evictions may change the refusal of a row."""
        return self._may_change[self.numbers.item(row)]

    def are_preemptible(self, rows: Ints) -> Bools:
        """bool (n_rows,): `is_preemptible` of each row."""
        found: Bools = np.array(self._may_change)[self.numbers[rows]]
        return found

    def kinds(self, numbers: Ints) -> Ints:
        """int64 (n,): 1 for the numbers of refusals that evictions may change, 0 for others, -1 for
        none."""
        found: Ints = np.where(numbers < 0, -1, np.array(self._may_change)[numbers])
        return found

    def rejections(self) -> Rejections:
        """See `PreemptorSearch.rejections`."""
        counted = zip(self.statuses, self.counts, strict=True)
        return [(status, n_rows) for status, n_rows in list(counted)[1:] if n_rows]


class PlannedCounts:
    """The verdicts of rows while a plan changes them; see `VerdictCounts`."""

    def __init__(self, rows: RowNumbers) -> None:
        self._rows = rows
        self._numbers: dict[int, int] = {}
        self._counts = list(rows.counts)
        self._latest: Rejections = rows.rejections()

    def rejections(self) -> Rejections:
        """See `VerdictCounts.rejections`."""
        return self._latest

    def change(self, row: int, number: int) -> None:
        """See `VerdictCounts.change`."""
        before = self._numbers.get(row)
        if before is None:
            before = self._rows.numbers.item(row)
        self._numbers[row] = number
        if before == number:
            return
        statuses, counts = self._rows.statuses, self._counts
        counts += [0] * (len(statuses) - len(counts))
        counts[before] -= 1
        counts[number] += 1
        self._latest = [
            (status, n) for status, n in zip(statuses[1:], counts[1:], strict=True) if n
        ]


class KeptCandidates:
    """See `PreemptorSearch`."""

    def __init__(
        self,
        pod: Pod,
        framework: Framework,
        state: CycleState,
        fit: RegisteredPlugin,
        pods: PodsOfTable,
        dry_runs: DryRuns,
    ) -> None:
        """pod: one of the class, and the state that its PreFilters left. fit: NodeResourcesFit, the
        only filter by which pods on a node count."""
        self._framework = framework
        self._state = state
        self._fit = fit
        self._budgets = pods.budgets
        self._dry_runs = dry_runs
        rule: NodeResourcesFit = fit.plugin
        self._rule = rule
        self._wanted = rule.wanted(pod)
        self._amounts = tuple(amount for _, amount in self._wanted)
        # As `PriorityRows.amounts`, and the bit of each of them.
        self._levels = 1, *self._amounts, *self._amounts
        self._column: Ints = np.array(self._levels, dtype=np.int64)[:, np.newaxis]
        self._bits: Ints = 1 << np.arange(len(self._levels), dtype=np.int64)
        self._shared = pods.rows_for(pod.priority, tuple(name for name, _ in self._wanted))
        self._shared.join(self, self._amounts)
        self._pod = pod
        requested = PodInfo.of(pod).footprint.requested
        # Whether nominated pods of the class count as much as it requests.
        self._counts_alike = all(requested.get(name, 0) == amount for name, amount in self._wanted)
        self._epoch = self._version = -1
        self._generation = 0
        self._has_gangs = False
        self._snapshot: Snapshot | None = None
        self._changed: set[int] = set()
        self._found: dict[int, PreemptionCandidate] = {}
        self._is_filled = False

    # What a caller asks.

    def follow(self, pod: Pod, snapshot: Snapshot) -> bool:
        """See `PreemptorSearch.follow`."""
        shared, self._snapshot = self._shared, snapshot
        if snapshot.object_store.version != self._version:
            self._version = snapshot.object_store.version
            self._has_gangs = any(True for _ in snapshot.object_store.all(PodGroup))
        if self._has_gangs:
            self._epoch = -1
            return False
        self._budgets.follow(snapshot.object_store)
        try:
            shared.follow(snapshot)
            touched = shared.changes.since(self._generation)
            self._generation = shared.changes.generation
            if touched is None or shared.epoch != self._epoch:
                self._begin(pod, snapshot)
                self._epoch = shared.epoch
            elif touched:
                self._changed.update(touched)
                if len(touched) <= ROWS_ONE_BY_ONE_MAX:
                    for row in touched:
                        self._rows.set(row, self._number_at(row))
                else:
                    rows = np.array(touched, dtype=np.int64)
                    self._rows.set_all(rows, self._numbers(rows))
        except MustBeWalked:
            self._epoch = -1
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
        if self._is_closed(row):
            return False
        try:
            room = self._shared.room_without(row, uid)
        except MustBeWalked:
            return None
        return room.n_slots > 0 and all(map(le, self._amounts, room.free))

    def passes_where_nominated(self, row: int, pod: Pod) -> bool:
        """See `PreemptorSearch.passes_where_nominated`."""
        if not self._counts_alike or self._is_closed(row) or self._snapshot is None:
            return False
        if self._snapshot.nominations.pod_of(pod.uid) is not pod:
            return False
        # The row counts the pod itself: it fits where nothing is short beside it.
        left: list[int] = self._shared.amounts[: len(self._amounts) + 1, row].tolist()
        return min(left) >= 0

    def rejections(self) -> Rejections:
        """See `PreemptorSearch.rejections`."""
        return self._rows.rejections()

    def passing(self) -> Ints:
        """See `PreemptorSearch.passing`."""
        return np.flatnonzero(self._rows.numbers == 0)

    def cheapest(self, pod: Pod) -> PreemptionCandidate | None:
        """See `PreemptorSearch.cheapest`."""
        shared = self._shared
        try:
            shared.find_keys()
            self._open_changed()
            n_most = 1
            while True:
                rows, are_known = self._candidates.first(n_most, shared.lowest)
                if not rows:
                    return None
                if are_known:
                    (row,) = rows
                    found = self._found.get(row)
                    return shared.dry_run(row, self._amounts) if found is None else found
                self._place(rows, pod)
                if len(rows) == n_most:
                    n_most *= 2
        except MustBeWalked:
            self._epoch = -1
            return None

    # Plans.

    def may_join(self, other: PreemptorSearch) -> bool:
        """See `PreemptorSearch.may_join`."""
        return (
            isinstance(other, KeptCandidates)
            and other._shared is self._shared
            and other._counts_alike
        )

    def plan(
        self, members: Sequence[PreemptorSearch], kernel: PreemptionKernel
    ) -> Iterator[PlannedPreemption]:
        """See `PreemptorSearch.plan`."""
        shared = self._shared
        kept: list[PlannedClass] = [one for one in members if isinstance(one, KeptCandidates)]
        if shared.epoch == shared.epoch_without_plans:
            return iter(())
        try:
            return plan(kept, shared, kernel)
        except MustBeWalked:
            shared.epoch_without_plans = shared.epoch
            return iter(())

    @property
    def wanted(self) -> tuple[int, ...]:
        """See `PlannedClass.wanted`."""
        return self._amounts

    @property
    def closed(self) -> Bools | None:
        """See `PlannedClass.closed`."""
        return (self._before > 0) | (self._after > 0) if self._is_static else None

    @property
    def closed_later(self) -> Bools | None:
        """See `PlannedClass.closed_later`."""
        found = (self._before == 0) & (self._after > 0) if self._is_static else None
        return found if found is not None and found.any() else None

    def kinds(self) -> Ints:
        """See `PlannedClass.kinds`."""
        return self._rows.kinds(self._by_code)

    def number_of(self, code: int) -> int:
        """See `PlannedClass.number_of`."""
        number: int = self._by_code.item(code)
        if number < 0:
            number = self._by_code[code] = self._number_of(code)
        return number

    def verdict_counts(self) -> PlannedCounts:
        """See `PlannedClass.verdict_counts`."""
        return PlannedCounts(self._rows)

    # Evaluation.

    def _begin(self, pod: Pod, snapshot: Snapshot) -> None:
        """Other nodes or budgets, or many changes: everything is evaluated again."""
        nodes = snapshot.nodes
        self._rows = RowNumbers(nodes.n_nodes)
        # By code of `_codes`; -1 where it has none yet.
        self._by_code = np.full(1 << self._bits.shape[0], -1, dtype=np.int32)
        self._by_code[0] = 0
        self._found = {}
        self._changed = set()
        self._is_filled = False
        # Of as many rows once one of them is asked for: plans do without.
        self._candidates = OrderedCandidates(0)
        members = self._framework.filters_by_row(self._state) or []
        place = members.index(self._fit)
        self._before = self._static_numbers(members[:place], pod, nodes)
        self._after = self._static_numbers(members[place + 1 :], pod, nodes)
        self._is_static = bool(self._before.any() or self._after.any())
        if not self._is_static:
            self._before = self._after = NO_NUMBERS
        self._rows.set_numbers(self._numbers_of(self._all_codes(), nodes.all_rows))

    def _static_numbers(
        self, members: Sequence[RegisteredPlugin], pod: Pod, nodes: NodeTable
    ) -> NDArray[np.int32]:
        """int32 (n_nodes,): the number of the first rejection by filters of the node only."""
        numbers = np.zeros(nodes.n_nodes, dtype=np.int32)
        for member in members:
            verdicts = member.verdicts(pod, nodes, nodes.all_rows, self._state)
            refused = (numbers == 0) & (verdicts.codes != 0)
            for code in np.unique(verdicts.codes[refused]).tolist():
                status = as_refusal(verdicts.explain(code).by(member.name))
                if not status.is_rejected:
                    raise MustBeWalked
                numbers[refused & (verdicts.codes == code)] = self._rows.number(status)
        return numbers

    def _numbers(self, rows: Ints) -> Ints:
        """int32 (n_rows,): the numbers of the verdicts of rows."""
        return self._numbers_of(self._codes(rows), rows)

    def _numbers_of(self, codes: NDArray[np.integer[Any]], rows: Ints | slice) -> Ints:
        """int32 (n_rows,): the numbers of the verdicts of rows with these codes."""
        numbers: Ints = self._by_code[codes]
        if numbers.min(initial=0) < 0:
            for code in np.flatnonzero(np.bincount(codes[numbers < 0])).tolist():
                self._by_code[code] = self._number_of(code)
            numbers = self._by_code[codes]
        if self._is_static:
            before, after = self._before[rows], self._after[rows]
            numbers = np.where(before > 0, before, np.where(numbers > 0, numbers, after))
        return numbers

    def _number_at(self, row: int) -> int:
        """`_numbers` of one row."""
        return self.number_with(row, self._shared.amounts[:, row].tolist())

    def number_with(self, row: int, amounts: Sequence[int]) -> int:
        """See `PlannedClass.number_with`."""
        if self._is_static and self._before.item(row):
            return int(self._before.item(row))
        code, bit = 0, 1
        for wanted, has in zip(self._levels, amounts, strict=True):
            if wanted > has:
                code |= bit
            bit <<= 1
        number = self.number_of(code)
        return number or (int(self._after.item(row)) if self._is_static else 0)

    def _codes(self, rows: Ints) -> Ints:
        """int64 (n_rows,): what is short on rows, a bit for each of `PriorityRows.amounts`."""
        codes: Ints = self._bits @ (self._column > self._shared.amounts[:, rows])
        return codes

    def _all_codes(self) -> NDArray[np.int16]:
        """int16 (n_nodes,): `_codes` of all rows, which are as many as a step for each bit pays."""
        amounts = self._shared.amounts
        codes = np.zeros(amounts.shape[1], dtype=np.int16)
        for bit, (wanted, has) in enumerate(zip(self._levels, amounts, strict=True)):
            codes |= (has < wanted).astype(np.int16) << bit
        return codes

    def _number_of(self, code: int) -> int:
        """The number of the verdict for a code of `_codes`."""
        assert self._snapshot is not None
        n_slots = 1 - (code & 1)
        free, offered = code >> 1, code >> 1 + len(self._amounts)
        amounts = [
            (amount - (offered >> place & 1), amount - (free >> place & 1))
            for place, amount in enumerate(self._amounts)
        ]
        fit_code = self._rule.code_of_row(self._wanted, n_slots, amounts)
        nodes = self._snapshot.nodes
        status = self._fit.call("filter_status", fit_code, self._pod, nodes, self._state)
        return self._rows.number(as_refusal(status.by(self._fit.name)))

    def _open_changed(self) -> None:
        """Put the rows that have changed where they are at best."""
        keys = self._shared.keys
        if not self._is_filled:
            rows = np.arange(keys.shape[0])
            self._candidates = OrderedCandidates(keys.shape[0])
            self._candidates.fill(self._open_keys(rows))
            self._is_filled, self._found = True, {}
        elif len(self._changed) <= ROWS_ONE_BY_ONE_MAX:
            for row in self._changed:
                is_open = self._rows.is_preemptible(row) and not self._is_closed(row)
                self._candidates.open_one(row, keys.item(row) if is_open else NOT_OPEN)
                self._found.pop(row, None)
        else:
            rows = np.array(list(self._changed), dtype=np.int64)
            self._candidates.open(rows, self._open_keys(rows))
            for row in self._found.keys() & self._changed:
                del self._found[row]
        self._changed.clear()

    def _is_closed(self, row: int) -> bool:
        """True where a filter of the node only rejects the class."""
        return self._is_static and bool(self._before.item(row) or self._after.item(row))

    def _open_keys(self, rows: Ints) -> Ints:
        """int64 (n_rows,): the keys of rows, NOT_OPEN where evictions do not help."""
        may_help = self._rows.are_preemptible(rows)
        if self._is_static:
            may_help &= (self._before[rows] == 0) & (self._after[rows] == 0)
        keys: Ints = np.where(may_help, self._shared.keys[rows], NOT_OPEN)
        return keys

    def _place(self, rows: list[int], pod: Pod) -> None:
        """Put open rows where they belong."""
        assert self._snapshot is not None
        rank, candidates = self._snapshot.nodes.rank, self._candidates
        for row in rows:
            candidates.close(row)
        if len(rows) > ONE_BY_ONE_MAX:
            every = np.array(sorted(rows), dtype=np.int64)
            runs = self._dry_runs(pod, self._snapshot, every, self._state)
            helped = runs.candidates_in(every)
            costs = runs.costs[:, helped].T.tolist()
            for row, some in zip(helped.tolist(), costs, strict=True):
                candidates.put(row, some, rank.item(row))
            return
        for row in rows:
            found = self._shared.dry_run(row, self._amounts)
            if found is not None:
                self._found[row] = found
                candidates.put(row, candidate_costs(found), rank.item(row))


def search_of(
    pod: Pod,
    snapshot: Snapshot,
    framework: Framework,
    state: CycleState,
    pods: PodsOfTable,
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
    if (
        len(wanted) > RESOURCES_MAX
        or snapshot.nodes.n_nodes > RANKS_MAX
        or not PRIORITY_MIN <= pod.priority <= PRIORITY_MAX
    ):
        return None
    return KeptCandidates(pod, framework, state, fit, pods, dry_runs(key))
