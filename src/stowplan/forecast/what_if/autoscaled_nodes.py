"""Nodes that an autoscaler adds to a version of a cluster, and how many.

Without virtual time nodes are only added: pods that do not fit get nodes as Cluster Autoscaler adds
them, one pool after another, and all pods are decided again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.forecast.what_if.outcome import DecisionOutcome
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.autoscaling.autoscale_config import (
    AutoscaleConfig,
    PoolNodes,
    pool_templates,
)
from stowplan.insight.autoscaling.scale_up import Option, scale_up
from stowplan.insight.cluster_copy import ClusterCopy
from stowplan.insight.node_pools import pool_of
from stowplan.insight.what_if.result import AutoscalerUse
from stowplan.objects.pod import Pod
from stowplan.simulation.node_autoscaler import NodeAutoscaler
from stowplan.simulation.simulate import autoscaler_frameworks


class AutoscaledPools(msgspec.Struct):
    """An autoscaler, its pools, and the cluster that shows what their nodes are like."""

    config: AutoscaleConfig
    given: Cluster

    def of(self, version: Cluster) -> list[PoolNodes]:
        """What each pool adds to a version: nodes like those that are not cordoned, if it has any
        left; raises ConfigError."""
        open_nodes = [node for node in version.nodes if not node.spec.unschedulable]
        there = {pool_of(node) for node in open_nodes}
        # A pool that is drained whole can grow again.
        more = [node for node in self.given.nodes if pool_of(node) not in there]
        bound = [*version.bound(), *self.given.bound()] if more else version.bound()
        return pool_templates(self.config, [*open_nodes, *more], bound)


def decide_with_more_nodes(
    version: Cluster,
    deciders: Deciders,
    pools: AutoscaledPools,
    decide: Callable[[Cluster], DecisionOutcome],
    seed: int,
) -> DecisionOutcome:
    """The outcome with the nodes that pending pods get. decide: the outcome of one version."""
    templates = pools.of(version)
    rng = np.random.default_rng([seed, 5])
    frameworks = autoscaler_frameworks(deciders, version)
    added: Counter[str] = Counter()
    while True:
        found = decide(version)
        pending, placed = _by_node(version, found)
        if not pending:
            break
        sizes = Counter(map(pool_of, version.nodes))
        rooms = [(one, one.pool.max - sizes[one.pool.name]) for one in templates]
        copy = ClusterCopy(
            version.nodes,
            [*(pod for pod in version.bound() if pod.key not in found.evicted), *placed],
            version.object_store(),
            frameworks,
        )
        option = scale_up(pending, copy, rooms, pools.config.expander, rng)
        if option is None:
            break
        added[option.pool.pool.name] += option.n_nodes
        version = _grown(version, option)
    found.autoscaled = AutoscalerUse(sum(added.values()), 0, dict(sorted(added.items())))
    return found


def _by_node(version: Cluster, found: DecisionOutcome) -> tuple[list[Pod], list[Pod]]:
    """The pods without a node, and those that were placed, on their nodes."""
    pending: list[Pod] = []
    placed: list[Pod] = []
    for pod in version.pending():
        node = found.node_of(pod)
        if node:
            placed.append(replace(pod, spec=replace(pod.spec, node_name=node)))
        elif not pod.spec.scheduling_gates:
            pending.append(pod)
    return pending, placed


def _grown(version: Cluster, option: Option) -> Cluster:
    names = {node.name for node in version.nodes}
    fresh = list(islice(option.pool.new_nodes(names.__contains__), option.n_nodes))
    daemons = [pod for node in fresh for pod in option.pool.daemon_pods(node)]
    return replace(version, nodes=[*version.nodes, *fresh], pods=[*version.pods, *daemons])


def use_over_time(autoscaler: NodeAutoscaler, pools: Iterable[PoolNodes]) -> AutoscalerUse:
    """What an autoscaler did in virtual time."""
    figures = autoscaler.summary()
    requested = [event.pool for event in autoscaler.log if event.action == "request"]
    priced = any(one.pool.price for one in pools)
    return AutoscalerUse(
        figures["requested"],
        figures["removed"],
        dict(sorted(Counter(requested).items())),
        figures["cost"] if priced else None,
    )
