"""Preemption plan: the nodes and victims of preemptors in turn, found by one call of a kernel.

Between two preemptors that fit nowhere nothing changes but the nomination of the first. So all that
the next one finds is known beforehand, as long as that is so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.engine.preemption_arrays import (
    BLOCK,
    CLOSED,
    CODE,
    FIRST,
    IS_PROTECTED,
    N_PODS,
    N_SLOTS,
    N_STATE,
    NOWHERE,
    PRIORITY,
    RANK,
    REQUESTS,
    START,
)
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.framework.deciders.preemptor_search import (
    PlannedPreemption,
    PreemptionKernel,
    Rejections,
)
from stowplan.plugins.preemption.dry_runs import PRIORITY_OFFSET
from stowplan.plugins.preemption.pods_by_importance import PODS_MAX, MustBeWalked
from stowplan.plugins.preemption.priority_rows import PriorityRows
from stowplan.plugins.preemption.ranked_pods import RankedPods, pod_importance

CODES_MAX = 64
"""Codes that become known while a plan is made, before it is given up."""

CELLS_MAX = 2_000_000
"""Rows times classes of a plan, and pods times potential victims of a row."""


class PlannedClass(Protocol):
    """Preemptors that request the same, as a plan reads their search."""

    @property
    def wanted(self) -> tuple[int, ...]:
        """What each of them requests, in the order of `PriorityRows.amounts`."""

    @property
    def closed(self) -> Bools | None:
        """bool (n_rows,): rows that a filter of the node rejects; None where there are none."""

    @property
    def closed_later(self) -> Bools | None:
        """bool (n_rows,): of `closed` those that only a filter after that of the amounts rejects:
        the verdict is that of the amounts once these are short. None where there are none."""

    def number_with(self, row: int, amounts: Sequence[int]) -> int:
        """The number of the verdict of a row that had this much, as `PriorityRows.amounts`."""

    def kinds(self) -> Ints:
        """int64 (n_codes,): by code of what is short on a row, 1 where evictions may help, 0 where
        not, -1 where that is not known."""

    def number_of(self, code: int) -> int:
        """The number of the verdict for a code, which is known from then on."""

    def verdict_counts(self) -> VerdictCounts:
        """The verdicts of all rows."""


class VerdictCounts(Protocol):
    """Rows by their verdict for a class, while a plan changes them."""

    def rejections(self) -> Rejections:
        """The rejections; the same object as before where nothing has changed."""

    def change(self, row: int, number: int) -> None:
        """A row has another verdict."""


class PotentialVictimTable(NamedTuple):
    """The pods that may go. table: int64 (n_lines, n_rows). pods: int64 (n_lines, n_pods). places:
    int64 (n_pods,), of each pod in the list of its row in `ranked`. n_most: of a row."""

    table: Ints
    pods: Ints
    places: Ints
    n_most: int


def plan(
    members: Sequence[PlannedClass], shared: PriorityRows, kernel: PreemptionKernel
) -> Iterator[PlannedPreemption]:
    """What these preemptors choose in turn, up to the first that finds no candidate, and what they
    are rejected for. members: the class of each, all of the same rows. Raises MustBeWalked."""
    classes = list(dict.fromkeys(members))
    numbers = {one: number for number, one in enumerate(classes)}
    of_members = np.array([numbers[one] for one in members], dtype=np.int64)
    n_rows = shared.keys.shape[0]
    if n_rows * len(classes) > CELLS_MAX:
        raise MustBeWalked
    potential = _potential_victims(shared)
    if len(members) * potential.n_most > CELLS_MAX:
        raise MustBeWalked
    wanted = np.array([one.wanted for one in classes], dtype=np.int64)
    state = np.zeros((len(classes), n_rows, N_STATE), dtype=np.int64)
    for number, one in enumerate(classes):
        closed = one.closed
        if closed is not None:
            state[number, closed, CODE] = CLOSED
    best = np.zeros((len(classes), -(-n_rows // BLOCK)), dtype=np.int64)
    left = np.zeros(wanted.shape[1], dtype=np.int64)
    rows = np.zeros(len(members), dtype=np.int64)
    victims = np.zeros((len(members) + 1, potential.n_most), dtype=np.int64)
    changed = np.zeros((len(members) + 1, max(2, len(classes))), dtype=np.int64)
    for _ in range(CODES_MAX):
        kinds = np.array([one.kinds() for one in classes], dtype=np.int64)
        table = potential.table.copy()
        n_planned = kernel(
            of_members, wanted, table, potential.pods, kinds, state, best, left, rows, victims,
            changed,
        )  # fmt: skip
        if n_planned != NOWHERE:
            break
        code = changed.item(0, 1)
        for one in classes:
            one.number_of(code)
    else:
        raise MustBeWalked
    changed = changed[:n_planned, : len(classes)]
    return _planned(members, classes, shared, potential, rows[:n_planned], victims, changed)


def _potential_victims(shared: PriorityRows) -> PotentialVictimTable:
    """The pods that preemptors of these rows may evict, and what is free. Raises MustBeWalked."""
    names, amounts, rank = shared.names, shared.amounts, shared.rank
    n_rows = rank.shape[0]
    table = np.zeros((N_SLOTS + amounts.shape[0], n_rows), dtype=np.int64)
    table[RANK], table[N_SLOTS:] = rank, amounts
    rows, victims = shared.potential_victims(np.arange(n_rows))
    if victims is None:
        return PotentialVictimTable(table, np.zeros((REQUESTS + len(names), 0), np.int64), rank, 1)
    ranked: RankedPods = shared.ranked
    n_most = int(victims.length.max())
    if n_most > PODS_MAX or any(map(ranked.may_overflow, names)):
        raise MustBeWalked
    table[FIRST, rows], table[N_PODS, rows] = victims.first, victims.length
    slots = victims.slots
    pods = np.empty((REQUESTS + len(names), slots.shape[0]), dtype=np.int64)
    pods[PRIORITY] = ranked.priority[slots] + PRIORITY_OFFSET
    start = ranked.start[slots]
    # Of times only the order counts, and most pods of a benchmark or trace have none.
    pods[START] = 0 if (start == start[0]).all() else np.unique(start, return_inverse=True)[1]
    pods[IS_PROTECTED] = victims.is_protected
    for place, name in enumerate(names):
        pods[REQUESTS + place] = ranked.amounts(name)[slots]
    places = slots - ranked.first[rows][victims.owners]
    return PotentialVictimTable(table, pods, places, n_most)


def _planned(
    members: Sequence[PlannedClass],
    classes: Sequence[PlannedClass],
    shared: PriorityRows,
    potential: PotentialVictimTable,
    rows: Ints,
    victims: Ints,
    changed: Ints,
) -> Iterator[PlannedPreemption]:
    """The preemptions on these rows, each made when it is asked for."""
    names, of_rows = shared.node_names, shared.ranked.pods
    protected = potential.pods[IS_PROTECTED]
    counts = {one: one.verdict_counts() for one in classes}
    changes = (changed != NOWHERE).any(axis=1).tolist()
    first = potential.table[FIRST, rows].tolist()
    closed_later = [(one, found) for one in classes if (found := one.closed_later) is not None]
    left: dict[int, list[int]] = {}
    for place, (row, begin) in enumerate(zip(rows.tolist(), first, strict=True)):
        going = np.flatnonzero(victims[place]) + begin
        infos = [of_rows[row][i] for i in potential.places[going].tolist()]
        n_violations = int(protected[going].sum())
        if 0 < n_violations < len(infos):
            infos.sort(key=pod_importance)
        candidate = PreemptionCandidate(names[row], tuple(infos), n_violations)
        yield PlannedPreemption(candidate, counts[members[place]].rejections())
        if changes[place]:
            for one, code in zip(classes, changed[place].tolist(), strict=True):
                if code != NOWHERE:
                    counts[one].change(row, one.number_of(code))
        if closed_later:
            # No candidates, so that the kernel does not follow them.
            amounts = left.setdefault(row, potential.table[N_SLOTS:, row].tolist())
            amounts[0] -= 1
            for slot, amount in enumerate(members[place].wanted, 1):
                amounts[slot] -= amount
            for one, is_closed in closed_later:
                if is_closed.item(row):
                    counts[one].change(row, one.number_with(row, amounts))
