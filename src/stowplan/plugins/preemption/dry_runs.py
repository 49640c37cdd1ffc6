"""Results of preemption dry runs by node, and the node where eviction costs least.

Source: kube-scheduler v1.36, framework/preemption pickOneNodeForPreemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import Floats, Ints, grow
from stowplan.framework import Snapshot, Status, error, unresolvable
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.framework.node_to_status import NodeToStatus, PluginVerdicts
from stowplan.plugins.preemption.ranked_pods import RankedPods, pod_importance, pod_start_time

Codes = NDArray[np.int32]
Flags = NDArray[np.uint8]

CANDIDATE = 0
"""The code of a row where eviction helps."""

STAYS, FREE, PROTECTED = 0, 1, 2
"""Outcome of a pod: it stays, it is evicted, it is evicted and takes a disruption budget below
zero."""

VIOLATIONS, HIGHEST, SUM, COUNT, AGE = range(5)
"""The criteria; the first that differs decides, smaller is better.

Number of victims that take a budget below zero; the highest priority among the victims; the sum of
their priorities, counted from the lowest possible, so that fewer victims beat more of them; their
number; and minus the earliest start among those of the highest priority: later is better.
"""

NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")

N_CRITERIA = 5
PRIORITY_OFFSET = 2**31


def no_victim_error(node_name: str) -> Status:
    """The error of a dry run in which the pod fits without evictions."""
    return error(f'expected at least one victim pod on node "{node_name}"')


def candidate_costs(candidate: PreemptionCandidate) -> tuple[float, ...]:
    """The criteria of one candidate. All are whole numbers below 2**53, but the last."""
    pods = [info.pod for info in candidate.victims]
    highest = pods[0].priority
    earliest = min(pod_start_time(pod) for pod in pods if pod.priority == highest)
    total = sum(pod.priority + PRIORITY_OFFSET for pod in pods)
    return (candidate.pdb_violations, highest, total, len(pods), -earliest)


class DryRunResults:
    """The outcome of a dry run per row, for pods of one class.

    codes: int32 (n_rows,), CANDIDATE or the number of a status. costs: float64 (N_CRITERIA,
    n_rows), of candidates. pod_outcomes: uint8 (n_slots,), the outcome of each ranked pod. The
    arrays may be longer than the rows and slots in use.
    """

    def __init__(self, ranked: RankedPods) -> None:
        self.ranked = ranked
        self.version = 0
        self.codes: Codes = np.zeros(0, dtype=np.int32)
        self.costs: Floats = np.zeros((N_CRITERIA, 0), dtype=np.float64)
        self.pod_outcomes: Flags = np.zeros(0, dtype=np.uint8)
        self._numbers: dict[Status, int] = {}
        self._statuses: list[Status] = []
        # Candidates that were found one by one.
        self._found: dict[int, PreemptionCandidate] = {}

    def make_room(self, n_rows: int) -> None:
        """Grow the arrays for every row and every ranked pod."""
        self.codes = grow(self.codes, (n_rows,))
        self.costs = grow(self.costs, (N_CRITERIA, n_rows))
        self.pod_outcomes = grow(self.pod_outcomes, (self.ranked.n_slots,))

    def number(self, status: Status) -> int:
        """The code of a status."""
        number = self._numbers.get(status)
        if number is None:
            self._statuses.append(status)
            number = self._numbers[status] = len(self._statuses)
        return number

    def put(self, row: int, found: PreemptionCandidate | Status) -> None:
        """Record the dry run of one row."""
        self.version += 1
        self._found.pop(row, None)
        if isinstance(found, Status):
            self.codes[row] = self.number(found)
            return
        self.codes[row] = CANDIDATE
        self.costs[:, row] = candidate_costs(found)
        self._found[row] = found

    def put_all(self, rows: Ints, codes: Codes, costs: Floats) -> None:
        """Record the dry runs of many rows; the caller writes the outcomes of their pods."""
        self.version += 1
        self.codes[rows] = codes
        self.costs[:, rows] = costs
        if self._found:
            for row in rows.tolist():
                self._found.pop(row, None)

    def status_of(self, row: int) -> Status:
        """Why eviction does not help on a row."""
        return self._statuses[int(self.codes[row]) - 1]

    def candidate_of(self, row: int, node_name: str) -> PreemptionCandidate:
        """The victims of a row where eviction helps."""
        found = self._found.get(row)
        if found is not None:
            return found
        first, length = int(self.ranked.first[row]), int(self.ranked.length[row])
        pod_outcomes = self.pod_outcomes[first : first + length].tolist()
        pods = self.ranked.pods[row]
        going = [
            (info, pod_outcome)
            for info, pod_outcome in zip(pods, pod_outcomes, strict=True)
            if pod_outcome != STAYS
        ]
        if any(pod_outcome == PROTECTED for _, pod_outcome in going):
            # Of equally important ones the protected come first: they were reprieved first.
            going.sort(key=lambda one: (*pod_importance(one[0]), -one[1]))
        victims = tuple(info for info, _ in going)
        return PreemptionCandidate(node_name, victims, int(self.costs[VIOLATIONS, row]))

    def candidates_in(self, rows: Ints) -> Ints:
        """int64: those of `rows` where eviction helps."""
        helped: Ints = rows[self.codes[rows] == CANDIDATE]
        return helped

    def cheapest(self, rows: Ints) -> Ints:
        """int64: those of the candidate `rows` with equal and lowest costs."""
        for costs in self.costs:
            values = costs[rows]
            least = values.min(initial=np.inf)
            # Most criteria are equal everywhere.
            if values.max(initial=-np.inf) > least:
                rows = rows[values == least]
        return rows

    def enough(self, rows: Ints, wanted: int) -> Ints:
        """int64: the first of `rows` up to the end of a search for so many candidates, of which one
        takes no budget below zero."""
        helps = self.codes[rows] == CANDIDATE
        is_free = helps & (self.costs[VIOLATIONS, rows] == 0)
        ends = np.flatnonzero((np.cumsum(is_free) > 0) & (np.cumsum(helps) >= wanted))
        return rows[: ends[0] + 1] if ends.shape[0] else rows

    def refusals(self, rows: Ints) -> NodeToStatus:
        """The statuses of those of `rows` where eviction does not help, as verdicts."""
        refused = rows[self.codes[rows] != CANDIDATE]
        verdicts = NodeToStatus(refused, ("",))
        codes = self.codes[refused].astype(np.int64)
        explained = PluginVerdicts(codes, lambda code: self._statuses[code - 1])
        verdicts.record(0, explained, np.arange(refused.shape[0]))
        return verdicts


class PreemptionReport:
    """The dry runs of one attempt, for explain and bulk answers.

    The report is built when it is read; raises LookupError where the cluster has changed since.
    """

    def __init__(self, runs: DryRunResults | None, rows: Ints, snapshot: Snapshot) -> None:
        """rows: those that were tried. runs: None where no node has a pod to evict."""
        self._runs = runs
        self._rows = rows
        self._nodes = snapshot.nodes
        self._made_at = self._now()

    def _now(self) -> tuple[int, int]:
        version = 0 if self._runs is None else self._runs.version
        return version, self._nodes.journal.generation

    def _tried(self) -> list[int]:
        """The rows in the order of the snapshot."""
        if self._now() != self._made_at:
            raise LookupError("a report of dry runs is read after the cluster has changed")
        ordered: list[int] = self._rows[np.argsort(self._nodes.rank[self._rows])].tolist()
        return ordered

    def _candidates(
        self, runs: DryRunResults, rows: Iterable[int]
    ) -> tuple[PreemptionCandidate, ...]:
        return tuple(runs.candidate_of(row, self._nodes.names[row]) for row in rows)

    @cached_property
    def candidates(self) -> tuple[PreemptionCandidate, ...]:
        """The nodes where eviction helps."""
        rows, runs = self._tried(), self._runs
        if runs is None:
            return ()
        return self._candidates(runs, (row for row in rows if runs.codes[row] == CANDIDATE))

    @cached_property
    def statuses(self) -> Mapping[str, Status]:
        """Node -> why eviction does not help there."""
        rows, runs, names = self._tried(), self._runs, self._nodes.names
        if runs is None:
            return {names[row]: NO_VICTIMS for row in rows}
        return {names[row]: runs.status_of(row) for row in rows if runs.codes[row] != CANDIDATE}

    @cached_property
    def best(self) -> tuple[PreemptionCandidate, ...]:
        """The candidates left after all criteria; the first of them is nominated."""
        rows, runs = self._tried(), self._runs
        if runs is None:
            return ()
        helped = runs.candidates_in(np.array(rows, dtype=np.int64))
        return self._candidates(runs, runs.cheapest(helped).tolist())
