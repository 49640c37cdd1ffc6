"""Preemption dry runs on many nodes at once, where pods count by their requests only.

The steps are those of one node: all pods of lower priority are removed, then they are reprieved in
turn where the preempting pod still fits. Here the next pod of every node is reprieved in one step.

Source: kube-scheduler v1.36, plugins/defaultpreemption SelectVictimsOnNode.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stowplan.columns.array_types import Bools, Floats, Ints
from stowplan.framework import Status
from stowplan.framework.node_to_status import PASSED, NodeToStatus, PluginVerdicts
from stowplan.framework.runtime.nominated_pods import NominatedPodsByRow
from stowplan.plugins.preemption.disruption_budgets import DisruptionBudgetIndex
from stowplan.plugins.preemption.dry_runs import (
    AGE,
    CANDIDATE,
    COUNT,
    FREE,
    HIGHEST,
    N_CRITERIA,
    NO_VICTIMS,
    PRIORITY_OFFSET,
    PROTECTED,
    STAYS,
    SUM,
    VIOLATIONS,
    Codes,
    DryRunResults,
    no_victim_error,
)
from stowplan.plugins.preemption.ranked_pods import RankedPods, expand_ranges
from stowplan.plugins.preemption.victim_selector import VictimSelector
from stowplan.plugins.resources.fit import RequestedResources

PODS_MAX = 512
SUM_MAX = 2**60
"""Limits on pods of a row, and on amounts of the pod and of nominated pods: their sums with the
amounts of as many pods that are not huge stay far from 2**63."""


class PotentialVictims:
    """The pods of lower priority of each row, in the order of their reprieve.

    slots: int64 (n_pods,), of ranked pods, row by row. first, length: int64 (n_rows,), the places
    of a row's pods in `slots`. owners: int64 (n_pods,), each pod's row as a place in `rows`.
    is_protected: bool (n_pods,), those whose eviction takes a disruption budget below zero; they
    are reprieved first.
    """

    def __init__(
        self, ranked: RankedPods, rows: Ints, length: Ints, budgets: DisruptionBudgetIndex
    ) -> None:
        """length: int64 (n_rows,), above 0: the number of each row's pods, which come last in the
        row."""
        self.length = length
        self.first = np.cumsum(length) - length
        last = ranked.first[rows] + ranked.length[rows]
        self.slots, self.owners = expand_ranges(last - length, length)
        self.is_protected: Bools = np.zeros(self.slots.shape[0], dtype=np.bool_)
        groups = ranked.groups(self.slots)
        if groups is not None:
            self.is_protected = budgets.protected(groups, self.owners)
            if self.is_protected.any():
                # A stable sort: within a row, the protected first, each kind by importance.
                order = np.lexsort((~self.is_protected, self.owners))
                self.slots, self.is_protected = self.slots[order], self.is_protected[order]


class DryRunNodeResources:
    """What NodeResourcesFit reads of rows, after hypothetical evictions.

    pod_count, pod_limit: int64 (n_rows,). held, offers: int64 (n_resources, n_rows), requested and
    allocatable amounts of the resources in `places`.
    """

    __slots__ = ("_places", "held", "offers", "pod_count", "pod_limit")

    def __init__(
        self, pod_count: Ints, pod_limit: Ints, held: Ints, offers: Ints, places: dict[str, int]
    ) -> None:
        self.pod_count = pod_count
        self.pod_limit = pod_limit
        self.held = held
        self.offers = offers
        self._places = places

    def requested(self, resource: str) -> Ints:
        """int64 (n_rows,)."""
        held: Ints = self.held[self._places[resource]]
        return held

    def allocatable(self, resource: str) -> Ints:
        """int64 (n_rows,)."""
        offers: Ints = self.offers[self._places[resource]]
        return offers


class VectorDryRun:
    """Dry runs on many rows where pods count by their requests only."""

    def __init__(self, trial: VictimSelector, budgets: DisruptionBudgetIndex) -> None:
        assert trial.fit is not None, "by room without NodeResourcesFit"
        self._pod = trial.pod
        self._snapshot = trial.snapshot
        self._state = trial.state
        self._members = trial.filters or ()
        self._budgets = budgets
        self._fit = trial.fit
        self._wanted: RequestedResources = self._fit.plugin.wanted(trial.pod)
        self._places = {name: place for place, (name, _) in enumerate(self._wanted)}
        self._nominated = NominatedPodsByRow.of(trial.snapshot, trial.pod.priority)

    def is_applicable(self, rows: Ints, ranked: RankedPods) -> bool:
        """True where all sums stay within 64 bits and all priorities within 32; the original has no
        such limits."""
        if ranked.has_out_of_range_priority or int(ranked.length[rows].max(initial=0)) > PODS_MAX:
            return False
        for name, amount in self._wanted:
            nominated = self._nominated.requested(name)[rows]
            low, high = int(nominated.min(initial=0)), int(nominated.max(initial=0))
            if ranked.may_overflow(name) or low < 0 or max(amount, high) > SUM_MAX:
                return False
        return True

    def run(self, rows: Ints, runs: DryRunResults) -> None:
        """Dry-run evictions on `rows`, ascending, and record the results.

        The pod is nominated to none of them, as it does not count itself.
        """
        ranked = runs.ranked
        n_below = ranked.below(rows, self._pod.priority)
        slots, _ = expand_ranges(ranked.first[rows], ranked.length[rows])
        runs.pod_outcomes[slots] = STAYS
        codes = np.full(rows.shape[0], runs.number(NO_VICTIMS), dtype=np.int32)
        costs: Floats = np.zeros((N_CRITERIA, rows.shape[0]), dtype=np.float64)
        tried = np.flatnonzero(n_below)
        if tried.shape[0]:
            codes[tried], costs[:, tried] = self._dry_run(rows[tried], n_below[tried], runs)
        runs.put_all(rows, codes, costs)

    def _dry_run(self, rows: Ints, n_below: Ints, runs: DryRunResults) -> tuple[Codes, Floats]:
        """The results of rows, each with this many potential victims; records the outcomes of their
        pods."""
        potential_victims = PotentialVictims(runs.ranked, rows, n_below, self._budgets)
        requests = self._table(
            lambda name: runs.ranked.amounts(name)[potential_victims.slots], potential_victims.slots
        )
        room = self._room(rows, n_below, _row_sums(requests, potential_victims))
        verdicts = self._filter_rows(rows, room)
        codes = np.full(rows.shape[0], CANDIDATE, dtype=np.int32)
        for status, refused in verdicts.refusals():
            codes[np.searchsorted(rows, refused)] = runs.number(status)
        fits = np.flatnonzero(verdicts.by == PASSED)
        goes = self._reprieve_pods(fits, potential_victims, room, requests)
        kind = np.where(potential_victims.is_protected, PROTECTED, FREE)
        runs.pod_outcomes[potential_victims.slots] = np.where(goes, kind, STAYS)
        costs = _victim_costs(runs.ranked, potential_victims, np.flatnonzero(goes))
        for place in fits[costs[COUNT, fits] == 0].tolist():
            name = self._snapshot.nodes.names[rows[place]]
            codes[place] = runs.number(no_victim_error(name))
        return codes, costs

    def _reprieve_pods(
        self,
        fits: Ints,
        potential_victims: PotentialVictims,
        room: DryRunNodeResources,
        requests: Ints,
    ) -> Bools:
        """bool (n_pods,): the victims, in the order of `potential_victims`.

        fits: places of the rows where the pod fits into `room` without any of them. requests: int64
        (n_resources, n_pods).
        """
        goes: Bools = np.zeros(potential_victims.slots.shape[0], dtype=np.bool_)
        # Longest first, so that the rows that have a next pod always come first.
        places = fits[np.argsort(-potential_victims.length[fits], kind="stable")]
        first, length = potential_victims.first[places], potential_victims.length[places]
        # Remaining amounts beside the pod; slots are a resource of which every pod uses one.
        wanted = np.array([[amount] for _, amount in self._wanted] + [[1]], dtype=np.int64)
        offers = np.vstack((room.offers[:, places], room.pod_limit[places]))
        left = offers - np.vstack((room.held[:, places], room.pod_count[places])) - wanted
        takes = np.vstack((requests, np.ones(potential_victims.slots.shape[0], dtype=np.int64)))
        for step in range(int(length.max(initial=0))):
            n_rows = int(np.searchsorted(-length, -step))
            pods = first[:n_rows] + step
            more = takes[:, pods]
            stays = (more <= left[:, :n_rows]).all(axis=0)
            left[:, :n_rows] -= more * stays
            goes[pods] = ~stays
        return goes

    # Filters.

    def _filter_rows(self, rows: Ints, room: DryRunNodeResources) -> NodeToStatus:
        """Filter results of rows with these resources."""
        verdicts = NodeToStatus(rows, [m.name for m in self._members])
        places, nodes = np.arange(rows.shape[0]), self._snapshot.nodes
        for index, member in enumerate(self._members):
            if member is self._fit:
                every = slice(0, rows.shape[0])
                codes = member.call("filter_column", self._pod, room, every, self._state)
                verdicts.record(index, PluginVerdicts(codes, self._refusal), places)
            elif member.node_only or member.name in self._state.row_signatures:
                answers = member.verdicts(self._pod, nodes, rows, self._state)
                verdicts.record(index, answers, places)
        return verdicts

    def _refusal(self, code: int) -> Status:
        nodes = self._snapshot.nodes
        status: Status = self._fit.call("filter_status", code, self._pod, nodes, self._state)
        return status

    # Resources of rows.

    def _table(self, column: Callable[[str], Ints], axis: Ints) -> Ints:
        """int64 (n_resources, n): the resources' columns, each as long as `axis`."""
        table: Ints = np.empty((len(self._places), axis.shape[0]), dtype=np.int64)
        for resource, place in self._places.items():
            table[place] = column(resource)
        return table

    def _room(self, rows: Ints, n_gone: Ints, gone: Ints) -> DryRunNodeResources:
        """Resources of rows without this many pods, and with the nominated pods. A pod that fits
        with these fits without them."""
        nodes, nominated = self._snapshot.nodes, self._nominated
        held = self._table(
            lambda name: nodes.requested(name)[rows] + nominated.requested(name)[rows], rows
        )
        return DryRunNodeResources(
            nodes.pod_count[rows] + nominated.pod_count[rows] - n_gone,
            nodes.pod_limit[rows],
            held - gone,
            self._table(lambda name: nodes.allocatable(name)[rows], rows),
            self._places,
        )


def _row_sums(amounts: Ints, potential_victims: PotentialVictims) -> Ints:
    """int64 (n_resources, n_rows): the summed requests of the pods of each row."""
    sums = np.zeros((amounts.shape[0], amounts.shape[1] + 1), dtype=np.int64)
    np.cumsum(amounts, axis=1, out=sums[:, 1:])
    total: Ints = (
        sums[:, potential_victims.first + potential_victims.length]
        - sums[:, potential_victims.first]
    )
    return total


def _victim_costs(ranked: RankedPods, potential_victims: PotentialVictims, victims: Ints) -> Floats:
    """float64 (N_CRITERIA, n_rows), 0 without victims.

    victims: places in the potential victims, sorted.
    """
    n_rows = potential_victims.length.shape[0]
    costs: Floats = np.zeros((N_CRITERIA, n_rows), dtype=np.float64)
    if victims.shape[0] == 0:
        return costs
    owners, slots = potential_victims.owners[victims], potential_victims.slots[victims]
    priority, start = ranked.priority[slots], ranked.start[slots]
    begins = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    hit = owners[begins]
    costs[HIGHEST, hit] = np.maximum.reduceat(priority, begins)
    is_highest = priority == costs[HIGHEST, owners]
    costs[AGE, hit] = -np.minimum.reduceat(np.where(is_highest, start, np.inf), begins)
    costs[COUNT] = np.bincount(owners, minlength=n_rows)
    costs[VIOLATIONS] = np.bincount(
        owners, potential_victims.is_protected[victims], minlength=n_rows
    )
    costs[SUM] = np.bincount(owners, priority + float(PRIORITY_OFFSET), minlength=n_rows)
    return costs
