"""Scale-up as Cluster Autoscaler decides it: which pool to grow for unschedulable pods.

Pods that fit on nodes that are there or starting are left out. For each pool the others are packed
on new nodes, large pods first, each on the first new node that passes the filters; an expander
chooses one pool.

Source: kubernetes/autoscaler, cluster-autoscaler/FAQ.md, estimator and expander.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stowplan.columns.nodeinfo import allocatable_amounts
from stowplan.cycle.attempt import filter_pod
from stowplan.insight.autoscaling.autoscale_config import PoolNodes
from stowplan.insight.cluster_copy import ClusterCopy
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests

PRICED = {"cpu": 1000.0, "memory": float(4 << 30)}
"""Amounts that count as equally dear: 1 core and 4 GiB."""


class Option(NamedTuple):
    """A pool that helps: so many new nodes for these pods. homes: number of the new node of each
    pod, from 0."""

    pool: PoolNodes
    n_nodes: int
    pods: tuple[Pod, ...]
    homes: tuple[int, ...]


def scale_up(
    pending: Sequence[Pod],
    copy: ClusterCopy,
    rooms: Sequence[tuple[PoolNodes, int]],
    expanders: Sequence[str],
    rng: np.random.Generator,
) -> Option | None:
    """The pool to grow now; None when none helps.

    pending: unschedulable pods, without those for which nodes are starting. copy: of the nodes that
    are there or starting, changed here. rooms: pools, and how many nodes each may get.
    """
    waiting = sorted(pending, key=lambda pod: -pod.priority)
    decisions = copy.place(waiting)
    left = [pod for pod, one in zip(waiting, decisions, strict=True) if not one.node_name]
    if not left:
        return None
    options = [_option(pool, room, left, copy) for pool, room in rooms if room > 0]
    helpful = [option for option in options if option.n_nodes]
    return choose(helpful, expanders, rng)


def _option(pool: PoolNodes, room: int, pods: Sequence[Pod], copy: ClusterCopy) -> Option:
    """How many nodes of a pool the pods need, up to `room`, and which of them they help."""
    offered = allocatable_amounts(pool.template)
    added: list[Node] = []
    helped: list[Pod] = []
    homes: list[str] = []
    fresh = pool.new_nodes(lambda name: copy.table.row(name) >= 0)
    stuck: set[int] = set()
    for pod in sorted(pods, key=lambda pod: -_size(pod, offered)):
        if id(pod.spec) in stuck:
            continue
        home = _first_fit(pod, copy, [node.name for node in added])
        # Like the last node that was added and left empty, another would not help.
        if home is None and len(added) < room and all(node.name in homes for node in added):
            node = next(fresh)
            _enter(node, pool, copy)
            added.append(node)
            home = _first_fit(pod, copy, [node.name])
        if home is None:
            stuck.add(id(pod.spec))
            continue
        copy.table.add_pod(pod, home)
        homes.append(home)
        helped.append(pod)
    for pod in helped:
        copy.remove(pod)
    for node in added:
        for daemon in pool.daemon_pods(node):
            copy.remove(daemon)
        copy.table.remove_node(node.name)
    used = list(dict.fromkeys(homes))
    return Option(pool, len(used), tuple(helped), tuple(map(used.index, homes)))


def _enter(node: Node, pool: PoolNodes, copy: ClusterCopy) -> None:
    copy.table.add_node(node)
    for pod in pool.daemon_pods(node):
        copy.table.add_pod(pod)


def _first_fit(pod: Pod, copy: ClusterCopy, names: Sequence[str]) -> str | None:
    """The first of these nodes that passes the filters."""
    framework = copy.frameworks.get(pod.spec.scheduler_name)
    if framework is None or not names:
        return None
    copy.table.refresh()
    attempt = filter_pod(pod, copy.snapshot, framework)
    if attempt.failure is not None:
        return None
    passed = set(attempt.passed.tolist())
    return next((name for name in names if copy.table.row(name) in passed), None)


def _size(pod: Pod, offered: Mapping[str, int]) -> float:
    """Share of a node that the pod requests, CPU and memory added."""
    asked = fit_requests(pod)
    return sum(asked.get(name, 0) / max(offered.get(name, 0), 1) for name in ("cpu", "memory"))


# Expanders.


def choose(
    options: Sequence[Option], expanders: Sequence[str], rng: np.random.Generator
) -> Option | None:
    """The best option by each expander in turn; what ties to the end is chosen at random."""
    best = list(options)
    for name in expanders:
        if len(best) > 1 and name in SCORES:
            scores = [SCORES[name](option) for option in best]
            best = [one for one, score in zip(best, scores, strict=True) if score == min(scores)]
    if not best:
        return None
    return best[int(rng.integers(len(best)))] if len(best) > 1 else best[0]


def _wasted(option: Option) -> float:
    """Idle shares of CPU and memory of the new nodes, added."""
    offered = allocatable_amounts(option.pool.template)
    total = 0.0
    for name in ("cpu", "memory"):
        there = offered.get(name, 0) * option.n_nodes
        asked = sum(fit_requests(pod).get(name, 0) for pod in option.pods)
        total += (there - asked) / there if there else 0.0
    return total


def _price(option: Option) -> float:
    """Price of the new nodes for what the pods request.

    Differs: the original takes the provider's price of a pod, and prefers machines of a size that
    suits the cluster's.
    """
    asked = sum(
        fit_requests(pod).get(name, 0) / unit
        for pod in option.pods
        for name, unit in PRICED.items()
    )
    return option.pool.pool.price * option.n_nodes / max(asked, 1e-9)


SCORES: Mapping[str, Callable[[Option], float]] = {
    "most-pods": lambda option: -len(option.pods),
    "least-waste": _wasted,
    "price": _price,
    "priority": lambda option: -option.pool.pool.priority,
}
"""Expander -> score of an option, the smallest best. `random` has none."""
