"""Freeing: the cheapest pods of a node whose removal lets another pod in."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, islice

from stowplan.columns import PodInfo
from stowplan.columns.overlay import Overlay
from stowplan.columns.pods.podinfo import WILDCARD_IP, Port, host_ports
from stowplan.cycle.attempt import Attempt
from stowplan.cycle.explanation import pending_form
from stowplan.insight.changes import edits
from stowplan.insight.changes.covers import CoverItem, cheapest_cover, least_cost
from stowplan.insight.changes.domain_pods import DomainPods
from stowplan.insight.changes.dry_run import DryRun
from stowplan.insight.changes.edits import FreeEdit
from stowplan.insight.changes.node_problems import FIT, PORTS, SLOTS, Problem
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests
from stowplan.objects.quantity import format_quantity

SYSTEM_CRITICAL = 2_000_000_000
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
TRIALS_MAX = 600
"""Sets of pods that are tried with the filters, in one search."""
SET_SIZE_MAX = 4
"""Pods in such a set."""
MOVED_MAX = 8
"""Pods of a set for which another node is looked for."""


def victim_cost(victim: Pod, pod: Pod, origins: Mapping[str, Object | None]) -> int | None:
    """Points of freeing a pod; None for pods that stay: of DaemonSets, static, system-critical or
    ending already, and those that are no objects of the input."""
    meta, priority = victim.metadata, victim.priority
    if priority >= SYSTEM_CRITICAL or meta.deletion_timestamp is not None:
        return None
    if meta.annotations and MIRROR_ANNOTATION in meta.annotations:
        return None
    owners = meta.owner_references
    if owners and any(owner.controller and owner.kind == "DaemonSet" for owner in owners):
        return None
    if origins and not isinstance(origins.get(victim.key, victim), Pod):
        return None
    own = pod.priority
    if priority == own:
        return edits.EQUAL
    return edits.PREEMPTIBLE if priority < own else edits.HIGHER


class Freeing:
    """Sets of pods to free on the nodes of one attempt.

    is_cut: whether a search ended before it was complete.
    """

    def __init__(self, attempt: Attempt, dry: DryRun, origins: Mapping[str, Object | None]) -> None:
        self.attempt = attempt
        self.dry = dry
        self.pod = attempt.pod
        self.nodes = attempt.snapshot.nodes
        self.origins = origins
        self.is_cut = False
        self._requests = fit_requests(self.pod)
        self._ports = host_ports(self.pod.spec)
        self._n_trials = 0
        self._removable: dict[int, list[tuple[PodInfo, int]]] = {}
        self._elsewhere = DomainPods(attempt)

    def bound(self, row: int, problems: frozenset[Problem]) -> int | None:
        """A lower bound of the points; None when freeing cannot help."""
        short, going, staying = self._split(row, problems)
        if (PORTS,) in problems and self._conflicting(staying):
            return None
        forced = sum(cost for _, cost in going)
        left, items = self._after(short, going, row, problems)
        more = least_cost(items, left)
        return None if more is None else max(forced + more, edits.PREEMPTIBLE)

    def cheapest(self, row: int, problems: frozenset[Problem]) -> FreeEdit | None:
        """The cheapest set of pods, each to be ended; None when freeing does not help."""
        if all(problem[0] in (FIT, "slots", PORTS) for problem in problems):
            short, going, staying = self._split(row, problems)
            if (PORTS,) in problems and self._conflicting(staying):
                return None
            left, items = self._after(short, going, row, problems)
            cover = cheapest_cover(items, left)
            if cover is None:
                return None
            self.is_cut |= not cover.is_exact
            others = self._others(row, going)
            chosen = [*going, *(others[i] for i in cover.chosen)]
        else:
            chosen = self._tried(row, problems)
            if not chosen:
                return None
        cost = sum(points for _, points in chosen)
        victims = tuple(info for info, _ in chosen)
        return FreeEdit(cost, self.nodes.names[row], victims, self._why(row, problems))

    def with_moves(self, edit: FreeEdit) -> FreeEdit:
        """The edit with a node for each of its pods that another node takes.

        Pods of other profiles are ended: their filters are not known here.
        """
        table, row = self.nodes, self.nodes.row(edit.node)
        moves: dict[str, str] = {}
        with Overlay(table) as overlay:
            for info in edit.victims:
                overlay.take(info.uid, table.row(info.pod.node_name))
            overlay.place(PodInfo.of(self.pod), row)
            for info in edit.victims[:MOVED_MAX]:
                if info.pod.spec.scheduler_name != self.pod.spec.scheduler_name:
                    continue
                attempt = self.dry.attempt(pending_form(info.pod))
                left = row, table.row(info.pod.node_name)
                targets = [r for r in attempt.feasible.tolist() if r not in left]
                if attempt.failure is None and targets:
                    moves[info.uid] = table.names[targets[0]]
                    overlay.place(info, targets[0])
        return FreeEdit(edit.cost, edit.node, edit.victims, edit.why, moves)

    # Resources, slots and ports: by amounts.

    def _split(
        self, row: int, problems: frozenset[Problem]
    ) -> tuple[tuple[int, ...], list[tuple[PodInfo, int]], list[PodInfo]]:
        """What is short per problem, the pods that must go, and those that must stay."""
        short = []
        for name in _resources(problems):
            free = int(self.nodes.allocatable(name)[row]) - int(self.nodes.requested(name)[row])
            short.append(self._requests.get(name, 0) - free)
        if SLOTS in problems:
            short.append(int(self.nodes.pod_count[row]) + 1 - int(self.nodes.pod_limit[row]))
        going: list[tuple[PodInfo, int]] = []
        staying: list[PodInfo] = []
        if (PORTS,) in problems:
            for info in self.nodes.pods[row]:
                cost = victim_cost(info.pod, self.pod, self.origins)
                if cost is None:
                    staying.append(info)
                elif self._conflicting([info]):
                    going.append((info, cost))
        return tuple(short), going, staying

    def _after(
        self,
        short: tuple[int, ...],
        going: list[tuple[PodInfo, int]],
        row: int,
        problems: frozenset[Problem],
    ) -> tuple[tuple[int, ...], list[CoverItem]]:
        """What is short without the pods that must go, and the other pods as items."""
        names, slots = _resources(problems), SLOTS in problems
        left = list(short)
        for info, _ in going:
            left = [m - a for m, a in zip(left, _amounts(info, names, slots=slots), strict=True)]
        items = [
            CoverItem(cost, _amounts(info, names, slots=slots))
            for info, cost in self._others(row, going)
        ]
        return tuple(left), items

    def _others(self, row: int, going: list[tuple[PodInfo, int]]) -> list[tuple[PodInfo, int]]:
        """The pods that may go, without those that must, and their points."""
        found = self._removable.get(row)
        if found is None:
            found = self._removable[row] = []
            for info in self.nodes.pods[row]:
                cost = victim_cost(info.pod, self.pod, self.origins)
                if cost is not None:
                    found.append((info, cost))
        if not going:
            return found
        gone = {info.uid for info, _ in going}
        return [one for one in found if one[0].uid not in gone]

    def _conflicting(self, pods: list[PodInfo]) -> bool:
        used = {port for info in pods for port in info.footprint.ports}
        return any(_conflict(mine, theirs) for mine in self._ports for theirs in used)

    # Other rules: by trying.

    def _tried(self, row: int, problems: frozenset[Problem]) -> list[tuple[PodInfo, int]]:
        """The cheapest set of pods without which the filters of these problems take the pod; empty
        if none is found.

        Where removing a pod never does harm, a pod without whose removal that of all others is not
        enough is part of every set.
        """
        candidates = self._others(row, [])
        for info in self._elsewhere.of(row):
            cost = victim_cost(info.pod, self.pod, self.origins)
            if cost is not None:
                candidates = [*candidates, (info, cost)]
        self.is_cut |= self._elsewhere.is_cut
        solved = self._solved(problems)
        forced = []
        if self._fits_without(row, candidates, solved):
            for at, one in enumerate(candidates):
                if not self._fits_without(row, candidates[:at] + candidates[at + 1 :], solved):
                    forced.append(one)
            if self._fits_without(row, forced, solved):
                return forced
        others = [one for one in candidates if one not in forced]
        most = min(SET_SIZE_MAX, len(others))
        sets = [
            [*forced, *some]
            for size in range(1, most + 1)
            for some in islice(combinations(others, size), self._n_trials_left)
        ]
        sets.sort(key=lambda some: sum(cost for _, cost in some))
        found = next((some for some in sets if self._fits_without(row, some, solved)), [])
        self.is_cut |= not found and len(others) > most
        return found

    @property
    def _n_trials_left(self) -> int:
        return max(0, TRIALS_MAX - self._n_trials)

    def _solved(self, problems: frozenset[Problem]) -> set[str]:
        """The filters that have other problems than these: what goes along solves them."""
        asked = {str(problem[1]) for problem in problems if problem[0] == "other"}
        asked |= {str(problem[0]) for problem in problems if problem != SLOTS}
        asked |= {FIT} if SLOTS in problems else set()
        known = {member.name for member in self.attempt.framework.at("filter")}
        return known - asked if asked & known else set()

    def _fits_without(self, row: int, going: list[tuple[PodInfo, int]], solved: set[str]) -> bool:
        """True when the filters but the solved ones take the pod without these pods; False after
        TRIALS_MAX."""
        if not self._n_trials_left:
            self.is_cut = True
            return False
        self._n_trials += 1
        attempt, framework = self.attempt, self.attempt.framework
        node, state = self.nodes.info(row).copy(), attempt.state.clone()
        for info, _ in going:
            place = self.nodes.row(info.pod.node_name)
            if place == row:
                node.remove_pod(info.uid)
            its_node = node if place == row else self.nodes.info(place)
            if not framework.run_remove_pod(self.pod, info, its_node, state).is_success:
                return False
        state.skip_filter |= solved
        status = framework.filter_with_nominated(self.pod, node, attempt.snapshot, state)
        return status.is_success

    def _why(self, row: int, problems: frozenset[Problem]) -> str:
        short, _, _ = self._split(row, problems)
        names = _resources(problems)
        words = [
            f"{format_quantity(name, amount)} {name}"
            for name, amount in zip(names, short, strict=False)
        ]
        words += ["a pod slot"] if SLOTS in problems else []
        words += ["a host port"] if (PORTS,) in problems else []
        return " and ".join(words)


def _resources(problems: frozenset[Problem]) -> list[str]:
    return sorted(str(problem[1]) for problem in problems if problem[0] == FIT)


def _amounts(info: PodInfo, names: list[str], *, slots: bool) -> tuple[int, ...]:
    requested = info.footprint.requested
    if len(names) == 1 and not slots:
        return (requested.get(names[0], 0),)
    amounts = [requested.get(name, 0) for name in names]
    return (*amounts, 1) if slots else tuple(amounts)


def _conflict(mine: Port, theirs: Port) -> bool:
    same_ip = mine[0] == theirs[0] or WILDCARD_IP in (mine[0], theirs[0])
    return same_ip and mine[1:] == theirs[1:]
