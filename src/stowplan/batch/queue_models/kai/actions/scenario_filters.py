"""Quick checks of scenarios, before they are simulated: cards per node and per domain of a required
topology level, and node affinity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from stowplan.batch.queue_models.kai.actions.victim_scenario import VictimScenario
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask
from stowplan.batch.queue_models.kai.state.pod_sets import KaiPodSet, SubGroupSet

K = TypeVar("K")


def matches(wanted: Sequence[float], holders: Sequence[K], free: Callable[[K], float]) -> bool:
    """Whether each amount finds a holder, largest first. holders: by what is free, most first."""
    taken: dict[K, float] = defaultdict(float)
    last, at = -1.0, 0
    for amount in wanted:
        if amount == 0:
            return True
        # Holders without room for an amount have none for another one that is equal.
        at = at if amount == last else 0
        last = amount
        while at < len(holders):
            holder = holders[at]
            if free(holder) < amount:
                return False
            if free(holder) - taken[holder] >= amount:
                taken[holder] += amount
                break
            at += 1
        else:
            return False
    return True


class FreeCardsFilter:
    """Cards of the nodes with the most of them, as many nodes as pods wait.

    Only those nodes are kept, and a node that comes in drives out the last one, as in the original.
    """

    def __init__(self, scenario: VictimScenario) -> None:
        self._free: dict[str, float] = {}
        self._top: list[str] = []
        # Recorded victims, then how many of those that are tried: they are only added.
        self._seen: set[str] = set()
        self._recorded: set[str] = set()
        self._n_tried = 0
        self._wanted = sorted((task.cards.quota for task in scenario.pending), reverse=True)
        self._is_needed = any(self._wanted)
        if not self._is_needed:
            return
        wanted, least = len(scenario.pending), -1.0
        for node in scenario.session.nodes.values():
            self._free[node.name] = node.free_cards()
            if self._free[node.name] > least or len(self._top) < wanted:
                self._insert(node.name, wanted <= len(self._top))
                least = self._free[self._top[-1]]
        self._update(scenario)

    def passes(self, scenario: VictimScenario) -> bool:
        """Whether every pod that waits may find its cards on a node."""
        if not self._is_needed:
            return True
        self._update(scenario)
        return matches(self._wanted, self._top, lambda name: self._free[name])

    def _update(self, scenario: VictimScenario) -> None:
        tried = scenario.tried[self._n_tried :]
        self._n_tried = len(scenario.tried)
        for tasks, seen in ((scenario.recorded_tasks, self._recorded), (tried, self._seen)):
            for task in tasks:
                if task.node and task.uid not in seen:
                    seen.add(task.uid)
                    self._release(task)

    def _release(self, task: KaiTask) -> None:
        if not self._top:
            return
        least = self._free[self._top[-1]]
        self._free[task.node] = self._free.get(task.node, 0.0) + task.accepted_cards.quota
        if self._free[task.node] > least:
            self._insert(task.node, True)

    def _insert(self, name: str, replaces: bool) -> None:
        top, free = self._top, self._free[name]
        low, high = 0, len(top)
        while low < high:
            middle = (low + high) // 2
            if self._free[top[middle]] > free:
                low = middle + 1
            else:
                high = middle
        if name in top:
            place = top.index(name)
            if low < place:
                top.insert(low, top.pop(place))
            return
        if replaces:
            top.pop()
        top.insert(low, name)


class DomainCardsFilter:
    """Cards of the domains of required topology levels."""

    def __init__(self, scenario: VictimScenario) -> None:
        self._wanted: dict[tuple[str, str], list[float]] = defaultdict(list)
        for group in _constrained(scenario.job.root):
            constraint = group.constraint
            if constraint is not None:
                tasks = [task for pods in group.pod_sets() for task in pods.tasks.values()]
                key = (constraint.topology, constraint.required_topology_level)
                self._wanted[key].append(sum(task.cards.quota for task in tasks))
        self._nodes = scenario.session.nodes
        self._seen: set[str] = set()
        self._free: dict[tuple[str, str], float] = defaultdict(float)
        for node in self._nodes.values() if self._wanted else ():
            self._add(node, node.free_cards())

    def _add(self, node: KaiNode, cards: float) -> None:
        for _, level in self._wanted:
            value = node.node.labels.get(level, "")
            if value:
                self._free[level, value] += cards

    def passes(self, scenario: VictimScenario) -> bool:
        """Whether every sub-group may find its cards in a domain."""
        if not self._wanted:
            return True
        for task in (*scenario.recorded_tasks, *scenario.tried):
            if task.node and task.uid not in self._seen:
                self._seen.add(task.uid)
                self._add(self._nodes[task.node], task.accepted_cards.quota)
        for (_, level), wanted in self._wanted.items():
            domains = [key for key in self._free if key[0] == level]
            domains.sort(key=lambda key: -self._free[key])
            if not matches(sorted(wanted, reverse=True), domains, lambda key: self._free[key]):
                return False
        return True


def _constrained(group: SubGroupSet) -> Iterable[KaiPodSet | SubGroupSet]:
    if group.constraint is not None and group.constraint.required_topology_level:
        yield group
    for child in group.groups:
        yield from _constrained(child)


class NodeRulesFilter:
    """Nodes that pods with node selectors or affinity may go to."""

    def __init__(self, scenario: VictimScenario, nodes: Iterable[str]) -> None:
        self._session = scenario.session
        self._fits = scenario.session.rules.fits_node
        self._names = {*nodes}
        self._picky = [task for task in scenario.pending if has_node_rules(task)]

    def passes(self, scenario: VictimScenario) -> bool:
        """Whether each of them has a node that is feasible or has a victim."""
        if not self._picky:
            return True
        for task in (*scenario.tried, *scenario.recorded_tasks):
            if task.node:
                self._names.add(task.node)
        session = self._session
        nodes = [session.nodes[name] for name in self._names]
        return all(any(self._fits(session, task, node) for node in nodes) for task in self._picky)


def has_node_rules(task: KaiTask) -> bool:
    """Whether a pod has a node selector or required node affinity."""
    spec = task.pod.spec
    if spec.node_selector is not None:
        return True
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity is not None and (affinity.required is not None)
