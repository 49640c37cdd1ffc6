"""Dry runs of a preemption on many nodes at a time, where pods matter by what they request only.

The walk is that of one node: all pods of lower priority go, then they come back in turn where the
pod that preempts still fits. Here every node's next pod comes back in one step.

Source: kube-scheduler v1.36, plugins/defaultpreemption SelectVictimsOnNode.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stowplan.framework import Status
from stowplan.framework.nominated import Crowds
from stowplan.framework.verdicts import PASSED, PluginVerdicts, Verdicts
from stowplan.plugins.fit import Wanted
from stowplan.plugins.preemption_budgets import Budgets
from stowplan.plugins.preemption_pods import RankedPods, spans
from stowplan.plugins.preemption_runs import (
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
    DryRuns,
    Floats,
    no_victim,
)
from stowplan.plugins.preemption_trial import Trial

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PODS_MAX = 512
SUM_MAX = 2**60
"""Pods of a row, and amounts of the pod and of those nominated: far from 2**63 together with the
amounts of so many pods that are not huge."""


class Lineup:
    """The pods of lower priority of each row, in the order in which they may come back.

    slots: int64 (n_pods,), of ranked pods, row by row. first, length: int64 (n_rows,), the places
    of a row's pods in `slots`. owners: int64 (n_pods,), each pod's row as a place in `rows`.
    is_protected: bool (n_pods,), those whose eviction takes a disruption budget below zero; they
    come back first.
    """

    def __init__(self, ranked: RankedPods, rows: Ints, length: Ints, budgets: Budgets) -> None:
        """length: int64 (n_rows,), above 0: how many of each row's pods, which stand last."""
        self.length = length
        self.first = np.cumsum(length) - length
        last = ranked.first[rows] + ranked.length[rows]
        self.slots, self.owners = spans(last - length, length)
        self.is_protected: Bools = np.zeros(self.slots.shape[0], dtype=np.bool_)
        groups = ranked.groups(self.slots)
        if groups is not None:
            self.is_protected = budgets.protected(groups, self.owners)
            if self.is_protected.any():
                # A stable sort: within a row, the protected first, each kind by importance.
                order = np.lexsort((~self.is_protected, self.owners))
                self.slots, self.is_protected = self.slots[order], self.is_protected[order]


class Room:
    """What NodeResourcesFit reads of rows, as they would be.

    pod_count, pod_limit: int64 (n_rows,). held, offers: int64 (n_resources, n_rows), what is
    requested and offered of the resources whose places `places` has.
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


class Arithmetic:
    """Dry runs on many rows where pods matter by what they request only."""

    def __init__(self, trial: Trial, budgets: Budgets) -> None:
        assert trial.fit is not None, "by room without NodeResourcesFit"
        self._pod = trial.pod
        self._snapshot = trial.snapshot
        self._state = trial.state
        self._members = trial.filters or ()
        self._budgets = budgets
        self._fit = trial.fit
        self._wanted: Wanted = self._fit.plugin.wanted(trial.pod)
        self._places = {name: place for place, (name, _) in enumerate(self._wanted)}
        self._crowds = Crowds.of(trial.snapshot, trial.pod.priority)

    def can_do(self, rows: Ints, ranked: RankedPods) -> bool:
        """True where all sums stay within 64 bits, as those of the original need not, and all
        priorities within 32."""
        if ranked.is_odd or int(ranked.length[rows].max(initial=0)) > PODS_MAX:
            return False
        for name, amount in self._wanted:
            crowd = self._crowds.requested(name)[rows]
            low, high = int(crowd.min(initial=0)), int(crowd.max(initial=0))
            if ranked.is_huge(name) or low < 0 or max(amount, high) > SUM_MAX:
                return False
        return True

    def run(self, rows: Ints, runs: DryRuns) -> None:
        """Try eviction on `rows`, ascending, and enter what was found.

        The pod is nominated to none of them, as it does not count itself.
        """
        ranked = runs.ranked
        n_below = ranked.below(rows, self._pod.priority)
        slots, _ = spans(ranked.first[rows], ranked.length[rows])
        runs.fates[slots] = STAYS
        codes = np.full(rows.shape[0], runs.number(NO_VICTIMS), dtype=np.int32)
        costs: Floats = np.zeros((N_CRITERIA, rows.shape[0]), dtype=np.float64)
        tried = np.flatnonzero(n_below)
        if tried.shape[0]:
            codes[tried], costs[:, tried] = self._walk(rows[tried], n_below[tried], runs)
        runs.put_all(rows, codes, costs)

    def _walk(self, rows: Ints, n_below: Ints, runs: DryRuns) -> tuple[Codes, Floats]:
        """What is found on rows, each with so many pods that may have to go; notes their fates."""
        lineup = Lineup(runs.ranked, rows, n_below, self._budgets)
        requests = self._table(lambda name: runs.ranked.amounts(name)[lineup.slots], lineup.slots)
        room = self._room(rows, n_below, _sums(requests, lineup))
        verdicts = self._judged(rows, room)
        codes = np.full(rows.shape[0], CANDIDATE, dtype=np.int32)
        for status, refused in verdicts.refusals():
            codes[np.searchsorted(rows, refused)] = runs.number(status)
        fits = np.flatnonzero(verdicts.by == PASSED)
        goes = self._give_back(fits, lineup, room, requests)
        kind = np.where(lineup.is_protected, PROTECTED, FREE)
        runs.fates[lineup.slots] = np.where(goes, kind, STAYS)
        costs = _costs(runs.ranked, lineup, np.flatnonzero(goes))
        for place in fits[costs[COUNT, fits] == 0].tolist():
            name = self._snapshot.nodes.names[rows[place]]
            codes[place] = runs.number(no_victim(name))
        return codes, costs

    def _give_back(self, fits: Ints, lineup: Lineup, room: Room, requests: Ints) -> Bools:
        """bool (n_pods,): the pods that must go, in the order of the line-up.

        fits: places of the rows where the pod fits into `room`, all others gone. requests: int64
        (n_resources, n_pods).
        """
        goes: Bools = np.zeros(lineup.slots.shape[0], dtype=np.bool_)
        # Longest first, so that the rows that have a next pod are always the first so many.
        places = fits[np.argsort(-lineup.length[fits], kind="stable")]
        first, length = lineup.first[places], lineup.length[places]
        # What is left beside the pod; slots are a resource of which every pod takes one.
        wanted = np.array([[amount] for _, amount in self._wanted] + [[1]], dtype=np.int64)
        offers = np.vstack((room.offers[:, places], room.pod_limit[places]))
        left = offers - np.vstack((room.held[:, places], room.pod_count[places])) - wanted
        takes = np.vstack((requests, np.ones(lineup.slots.shape[0], dtype=np.int64)))
        for step in range(int(length.max(initial=0))):
            n_rows = int(np.searchsorted(-length, -step))
            pods = first[:n_rows] + step
            more = takes[:, pods]
            stays = (more <= left[:, :n_rows]).all(axis=0)
            left[:, :n_rows] -= more * stays
            goes[pods] = ~stays
        return goes

    # What the filters are asked.

    def _judged(self, rows: Ints, room: Room) -> Verdicts:
        """What the filters say of rows with that room."""
        verdicts = Verdicts(rows, [m.name for m in self._members])
        places, nodes = np.arange(rows.shape[0]), self._snapshot.nodes
        for index, member in enumerate(self._members):
            if member is self._fit:
                every = slice(0, rows.shape[0])
                codes = member.call("filter_column", self._pod, room, every, self._state)
                verdicts.record(index, PluginVerdicts(codes, self._refusal), places)
            elif member.node_only:
                answers = member.verdicts(self._pod, nodes, rows, self._state)
                verdicts.record(index, answers, places)
        return verdicts

    def _refusal(self, code: int) -> Status:
        nodes = self._snapshot.nodes
        status: Status = self._fit.call("filter_status", code, self._pod, nodes, self._state)
        return status

    # What there is.

    def _table(self, column: Callable[[str], Ints], axis: Ints) -> Ints:
        """int64 (n_resources, n): the resources' columns, each as long as `axis`."""
        table: Ints = np.empty((len(self._places), axis.shape[0]), dtype=np.int64)
        for resource, place in self._places.items():
            table[place] = column(resource)
        return table

    def _room(self, rows: Ints, n_gone: Ints, gone: Ints) -> Room:
        """Of rows without so many pods and what they request, and with those nominated.

        Where there is room with these there is room without them.
        """
        nodes, crowds = self._snapshot.nodes, self._crowds
        held = self._table(
            lambda name: nodes.requested(name)[rows] + crowds.requested(name)[rows], rows
        )
        return Room(
            nodes.pod_count[rows] + crowds.pod_count[rows] - n_gone,
            nodes.pod_limit[rows],
            held - gone,
            self._table(lambda name: nodes.allocatable(name)[rows], rows),
            self._places,
        )


def _sums(amounts: Ints, lineup: Lineup) -> Ints:
    """int64 (n_resources, n_rows): what the pods of each row request together."""
    sums = np.zeros((amounts.shape[0], amounts.shape[1] + 1), dtype=np.int64)
    np.cumsum(amounts, axis=1, out=sums[:, 1:])
    total: Ints = sums[:, lineup.first + lineup.length] - sums[:, lineup.first]
    return total


def _costs(ranked: RankedPods, lineup: Lineup, victims: Ints) -> Floats:
    """float64 (N_CRITERIA, n_rows), 0 where nobody goes. victims: places in the line-up, sorted."""
    n_rows = lineup.length.shape[0]
    costs: Floats = np.zeros((N_CRITERIA, n_rows), dtype=np.float64)
    if victims.shape[0] == 0:
        return costs
    owners, slots = lineup.owners[victims], lineup.slots[victims]
    priority, start = ranked.priority[slots], ranked.start[slots]
    begins = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    hit = owners[begins]
    costs[HIGHEST, hit] = np.maximum.reduceat(priority, begins)
    is_highest = priority == costs[HIGHEST, owners]
    costs[AGE, hit] = -np.minimum.reduceat(np.where(is_highest, start, np.inf), begins)
    costs[COUNT] = np.bincount(owners, minlength=n_rows)
    costs[VIOLATIONS] = np.bincount(owners, lineup.is_protected[victims], minlength=n_rows)
    costs[SUM] = np.bincount(owners, priority + float(PRIORITY_OFFSET), minlength=n_rows)
    return costs
