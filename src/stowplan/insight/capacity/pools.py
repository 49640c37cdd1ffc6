"""Pools that a workload may run on: what a new node of each is like, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError
from stowplan.insight.changes.freeing import MIRROR_ANNOTATION
from stowplan.insight.changes.node_edits import is_of_condition, new_nodes
from stowplan.insight.changes.pod_edits import taint_text
from stowplan.insight.node_pools import pool_of
from stowplan.objects.node import HOSTNAME_LABEL, Node
from stowplan.objects.pod import Pod

PRICE_MAX = 1e12
"""Highest price of a node: sums and bounds stay finite."""


class PricedPool(msgspec.Struct, frozen=True):
    """Nodes that can be added: new ones take the templates in turn, which differ in labels (zones)
    only. price: of one node. daemons: pods that run on each node."""

    name: str
    price: float
    templates: tuple[Node, ...]
    daemons: tuple[Pod, ...] = ()

    def nodes(self, count: int) -> list[Node]:
        """New nodes, each with a name of its own."""
        templates = self.templates
        return [_named(templates[i % len(templates)], f"{self.name}-{i}") for i in range(count)]

    def daemon_pods(self, node: Node) -> list[Pod]:
        """The pods that run on a new node."""
        return [daemon_on(node.name, pod) for pod in self.daemons]


def daemon_on(node: str, pod: Pod) -> Pod:
    """The pod of a DaemonSet as it runs on another node."""
    meta = replace(pod.metadata, name=f"{pod.name}-{node}", uid=f"{pod.uid}-{node}")
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=node))


def _named(node: Node, name: str) -> Node:
    labels = dict(node.labels)
    if HOSTNAME_LABEL in labels:
        labels[HOSTNAME_LABEL] = name
    return replace(node, metadata=replace(node.metadata, name=name, labels=labels))


def pools_of(
    nodes: Sequence[Node], bound: Sequence[Pod], prices: Mapping[str, float]
) -> list[PricedPool]:
    """The pools of a cluster, by name; with prices only those that have one. A pool whose nodes
    differ in resources or taints is one pool for each kind.

    prices: pool -> price of one node; empty: each node costs 1. Raises InputError for a price of an
    unknown pool, and one that is not above 0 up to PRICE_MAX.
    """
    known = {pool_of(node) for node in nodes}
    for name, price in prices.items():
        if name not in known:
            hint = did_you_mean(name, known)
            wanted = f"one of the pools {', '.join(sorted(known))}"
            raise InputError("price", "", repr(name), f"{wanted}; {hint}" if hint else wanted)
        if not 0 < price <= PRICE_MAX:
            raise InputError("price", name, f"{price:g}", f"a number above 0 up to {PRICE_MAX:g}")
    first: dict[tuple[str, object], Node] = {}
    for node in nodes:
        first.setdefault((pool_of(node), _shape(node)), node)
    templates: dict[tuple[str, object], list[Node]] = {}
    for edit in new_nodes(nodes):
        templates.setdefault((edit.pool, _shape(edit.node)), []).append(edit.node)
    daemons: dict[str, list[Pod]] = {node.name: [] for node in first.values()}
    for pod in bound:
        if pod.node_name in daemons and runs_on_every_node(pod):
            daemons[pod.node_name].append(pod)
    shapes = [name for name, _ in templates]
    found = []
    for (name, shape), some in templates.items():
        if prices and name not in prices:
            continue
        title = name if shapes.count(name) == 1 else f"{name}:{_shape_text(some[0])}"
        # Of a condition's taint the template has none; the node that shows its daemons may.
        sample = first.get((name, shape))
        own = tuple(daemons[sample.name]) if sample is not None else ()
        found.append(PricedPool(title, prices.get(name, 1.0), tuple(some), own))
    return sorted(found, key=lambda pool: pool.name)


def runs_on_every_node(pod: Pod) -> bool:
    """True for pods of DaemonSets and static pods, which a new node has, too."""
    owner = pod.controller
    is_static = MIRROR_ANNOTATION in pod.metadata.annotations
    return is_static or (owner is not None and owner.kind in ("DaemonSet", "Node"))


def _shape(node: Node) -> object:
    """What nodes of one shape have in common."""
    taints = tuple(taint for taint in node.taints if not is_of_condition(taint))
    return tuple(sorted(node.status.allocatable.items())), taints


def _shape_text(node: Node) -> str:
    offered = node.status.allocatable
    amounts = [f"{name}={offered[name]}" for name in sorted(offered)]
    return ",".join([*amounts, *(f"taint {taint_text(taint)}" for taint in node.taints)])
