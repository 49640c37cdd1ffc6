"""Topology levels of KAI-Scheduler: sets of nodes that lie in one domain of a required level, and
scores that keep pods within one domain of a preferred level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stowplan.batch.queue_models.kai.state.kai_amount import (
    CARDS,
    CPU,
    MEMORY,
    PODS,
    Amount,
    plus,
)
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import ACTIVE_STATUSES, KaiTask
from stowplan.batch.queue_models.kai.state.pod_sets import KaiPodSet, SubGroupSet
from stowplan.objects.kai.kai_kinds import KaiTopologyConstraint

ROOT = "root"
TOPOLOGY_SCORE = 100_000.0
STEPS = 10
MISSING_RATIO = 1000.0
NOT_COUNTED = -1


class KaiTopologyLevels(msgspec.Struct, frozen=True):
    """A Topology: node labels, widest first."""

    name: str
    levels: tuple[str, ...]


class Domain:
    """Nodes with the same labels down to a level. pods: how many of the job's pods fit."""

    def __init__(self, key: str, level: str) -> None:
        self.key = key
        self.level = level
        self.children: list[Domain] = []
        self.nodes: dict[str, KaiNode] = {}
        self.pods = NOT_COUNTED
        self.free: Amount = []

    def below(self, level: str) -> list[Domain]:
        """Domains of a level in it, itself included."""
        if self.level == level:
            return [self]
        return [one for child in self.children for one in child.below(level)]

    def subtree(self) -> Iterable[Domain]:
        """Itself and all below."""
        yield self
        for child in self.children:
            yield from child.subtree()

    def count_free(self) -> Amount:
        """Set what is free or being released."""
        if self.children:
            for child in self.children:
                self.free = plus(self.free, child.count_free())
            return self.free
        for node in self.nodes.values():
            self.free = plus(plus(self.free, node.idle), node.releasing)
        return self.free

    def count_pods(self, largest: Amount, wanted: int) -> int:
        """Set how many pods fit. largest: what no pod exceeds."""
        if self.children:
            self.pods = sum(child.count_pods(largest, wanted) for child in self.children)
        else:
            self.pods = sum(_pods_on(node, largest, wanted) for node in self.nodes.values())
        return self.pods


def _pods_on(node: KaiNode, largest: Amount, wanted: int) -> int:
    if all(asked <= (1 if place == PODS else 0) for place, asked in enumerate(largest)):
        return wanted
    free = plus(node.idle, node.releasing)
    if 0 < largest[CARDS] < 1:
        free[CARDS] += node.free_parts()
    if any(asked > free[place] for place, asked in enumerate(largest)):
        return 0
    return min(
        (int(free[place] / asked) for place, asked in enumerate(largest) if asked > 0),
        default=wanted,
    )


class _Tree:
    """The domains of a topology, by level and key."""

    def __init__(self, topology: KaiTopologyLevels, nodes: Iterable[KaiNode]) -> None:
        self.levels = topology.levels
        self.root = Domain(ROOT, ROOT)
        self.domains: dict[str, dict[str, Domain]] = {ROOT: {ROOT: self.root}}
        for node in nodes:
            if self.has(node):
                self._add(node)

    def has(self, node: KaiNode) -> bool:
        """Whether a node has all labels."""
        return all(level in node.node.labels for level in self.levels)

    def _add(self, node: KaiNode) -> None:
        parent = self.root
        parent.nodes[node.name] = node
        for depth, level in enumerate(self.levels):
            key = ".".join(node.node.labels[one] for one in self.levels[: depth + 1])
            of_level = self.domains.setdefault(level, {})
            domain = of_level.get(key)
            if domain is None:
                domain = of_level[key] = Domain(key, level)
                parent.children.append(domain)
            domain.nodes[node.name] = node
            parent = domain

    def common_domain(self, nodes: Iterable[KaiNode], preferred: str) -> Domain | None:
        """The lowest domain that has all nodes, but not below the preferred level."""
        parts: list[str] = []
        for level in self.levels:
            values = {node.node.labels[level] for node in nodes}
            if len(values) != 1 or "" in values:
                break
            parts += values
            if level == preferred:
                break
        if not parts:
            return self.root
        return self.domains.get(self.levels[len(parts) - 1], {}).get(".".join(parts))

    def reset(self, size: int) -> None:
        """Forget what was counted."""
        for domains in self.domains.values():
            for domain in domains.values():
                domain.pods = NOT_COUNTED
                domain.free = [0.0] * size

    def bottom_up(self) -> list[Domain]:
        """All domains from the lowest level up, siblings in their order."""
        levels = [[self.root]]
        while below := [child for domain in levels[-1] for child in domain.children]:
            levels.append(below)
        return [domain for level in reversed(levels) for domain in level]


class TopologyPlacement:
    """Topologies of a session. Scores are those of the job that is being placed."""

    def __init__(self, topologies: Sequence[KaiTopologyLevels], nodes: Sequence[KaiNode]) -> None:
        self._trees = {one.name: _Tree(one, nodes) for one in topologies}
        self._scores: dict[str, Mapping[str, float]] = {}

    @property
    def has_scores(self) -> bool:
        """Whether nodes have scores for the job that is being placed."""
        return bool(self._scores)

    def start_job(self) -> None:
        """Forget the scores of the last job."""
        self._scores = {}

    def demand_of(self, constraint: KaiTopologyConstraint) -> str:
        """What is wrong with a constraint, or else which domains it needs; "" if it needs none."""
        if not constraint.topology:
            return ""
        tree = self._trees.get(constraint.topology)
        if tree is None:
            return f'topologies.kai.scheduler "{constraint.topology}" not found'
        required = constraint.required_topology_level
        preferred = constraint.preferred_topology_level
        for level in (required, preferred):
            if level and level not in tree.levels:
                return f'topology {constraint.topology} has no level "{level}"'
        if not required and not preferred:
            return (
                f"its topology constraint names topology {constraint.topology} and no level, "
                "neither required nor preferred"
            )
        if not required:
            return ""
        if preferred and tree.levels.index(preferred) < tree.levels.index(required):
            return (
                f"its preferred level {preferred} of topology {constraint.topology} is above the "
                f"required level {required}: no domain is tried"
            )
        return f"its pods need one domain of {required}, topology {constraint.topology}"

    def score(self, job: KaiJob, task: KaiTask, node: KaiNode) -> float | None:
        """The score of a node; None if the preferred levels of the pod's sub-group rule it out."""
        group: KaiPodSet | SubGroupSet | None = job.sets[task.sub_group]
        while group is not None:
            scores = self._scores.get(group.name)
            if scores is not None:
                return scores.get(node.name)
            group = group.parent
        return 0.0

    def node_sets(
        self,
        job: KaiJob,
        group: KaiPodSet | SubGroupSet,
        pod_sets: Sequence[KaiPodSet],
        tasks: Sequence[KaiTask],
        nodes: Sequence[KaiNode],
    ) -> Sequence[Sequence[KaiNode]]:
        """Sets of nodes to try for pods of a sub-group, best first; none if it cannot be placed."""
        constraint = group.constraint
        if constraint is None or not constraint.topology or not tasks:
            return (
                [nodes] if constraint is None or constraint.topology in ("", *self._trees) else []
            )
        tree = self._trees.get(constraint.topology)
        if tree is None:
            return []
        required = constraint.required_topology_level
        preferred = constraint.preferred_topology_level
        valid = [node for node in nodes if tree.has(node)]
        domain = tree.common_domain(valid, preferred)
        if domain is None:
            return []
        total = _counted(tree, domain, tasks)
        if not _fits(domain, total, len(tasks)):
            return []
        _sort(domain, total, preferred or required)
        if preferred:
            self._scores[group.name] = _node_scores(domain, preferred)
        levels = _levels(tree, required, preferred)
        allowed = _allowed_domains(tree, pod_sets, required)
        chosen = [
            one
            for one in tree.bottom_up()
            if one.level in levels
            and (allowed is None or one in allowed)
            and _fits(one, total, len(tasks))
        ]
        names = {node.name for node in valid}
        return [[node for name, node in one.nodes.items() if name in names] for one in chosen]


def _counted(tree: _Tree, domain: Domain, tasks: Sequence[KaiTask]) -> Amount:
    total = list(tasks[0].request)
    for task in tasks[1:]:
        total = plus(total, task.request)
    tree.reset(len(total))
    domain.count_free()
    if _are_alike(tasks):
        largest = [max(column) for column in zip(*(t.request for t in tasks), strict=True)]
        domain.count_pods(largest, len(tasks))
    return total


def _are_alike(tasks: Sequence[KaiTask]) -> bool:
    """Whether all pods ask for the same resources."""
    with_cards = sum(1 for task in tasks if task.cards.cards > 0)
    if with_cards not in (0, len(tasks)):
        return False
    for place in range(len(tasks[0].request)):
        if place not in (CPU, MEMORY, CARDS):
            count = sum(1 for task in tasks if task.request[place] > 0)
            if count not in (0, len(tasks)):
                return False
    return True


def _ratio(total: Amount, domain: Domain) -> float:
    """The largest part of what is free that the pods ask for."""
    ratio = 0.0
    for place, asked in enumerate(total):
        if asked > 0 and place != PODS:
            free = domain.free[place]
            ratio = max(ratio, asked / free if free > 0 else MISSING_RATIO)
    return ratio


def _fits(domain: Domain, total: Amount, count: int) -> bool:
    if domain.pods != NOT_COUNTED:
        return domain.pods >= count
    return _ratio(total, domain) <= 1


def _sort(domain: Domain, total: Amount, lowest: str) -> None:
    """Order children: the fuller ones first, then by key."""
    if not lowest:
        return
    domain.children.sort(key=lambda child: (-_ratio(total, child), child.key))
    if domain.level != lowest:
        for child in domain.children:
            _sort(child, total, lowest)


def _node_scores(domain: Domain, preferred: str) -> dict[str, float]:
    ordered = domain.below(preferred)
    return {
        name: math.floor((i + 1) / len(ordered) * STEPS) * TOPOLOGY_SCORE
        for i, one in enumerate(ordered)
        for name in one.nodes
    }


def _levels(tree: _Tree, required: str, preferred: str) -> set[str]:
    """Levels whose domains may hold the pods: from the preferred one up to the required one; none
    if one of them does not exist."""
    found: set[str] = set()
    has_preferred = has_required = False
    for level in (*reversed(tree.levels), ROOT):
        has_preferred |= level == preferred
        has_required |= level == required
        if has_preferred or has_required:
            found.add(level)
        if has_required:
            break
    is_missing = (required and not has_required) or (preferred and not has_preferred)
    return set() if is_missing else found


def _allowed_domains(
    tree: _Tree, pod_sets: Sequence[KaiPodSet], required: str
) -> set[Domain] | None:
    """Domains in the required ones that have pods of the sub-group already; None: all."""
    if not required or not any(pods.active for pods in pod_sets):
        return None
    taken = {
        task.node
        for pods in pod_sets
        for task in pods.tasks.values()
        if task.status & ACTIVE_STATUSES
    }
    return {
        one
        for domain in tree.domains.get(required, {}).values()
        if taken & domain.nodes.keys()
        for one in domain.subtree()
    }
