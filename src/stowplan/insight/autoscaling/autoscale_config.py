"""Autoscale file: the pools of a node autoscaler, and how it decides."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import count, islice
from typing import Annotated, Literal

import msgspec

from stowplan.config.document_trees import documents
from stowplan.config.strict_decoder import INVALID, Problems, decode
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.capacity.pools import daemon_on, pools_of
from stowplan.insight.node_pools import POOL_LABELS, pool_of
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import HOSTNAME_LABEL, Node, NodeSpec, NodeStatus, Taint
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import QuantityError, amount

API_VERSION, KIND = "stowplan.dev/autoscale/v1", "Autoscale"
EXPANDERS = ("random", "most-pods", "least-waste", "price", "priority")
Expander = Literal["random", "most-pods", "least-waste", "price", "priority"]
Mode = Literal["cluster-autoscaler", "karpenter"]
Count = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Price = Annotated[float, msgspec.Meta(ge=0)]
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class TemplateTaint(msgspec.Struct, frozen=True, rename="camel"):
    """A taint of new nodes."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class NodeTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """Template of new nodes of a pool. allocatable: resource -> quantity."""

    labels: dict[str, str] = {}
    taints: tuple[TemplateTaint, ...] = ()
    allocatable: dict[str, str] = {}


class ScaledPool(msgspec.Struct, frozen=True, rename="camel"):
    """A pool whose number of nodes changes between min and max.

    template: None for a node like those that the cluster has. price: of a node per hour. priority:
    for the expander priority, the highest first. startup_delay: from the decision to the ready
    node.
    """

    name: str
    max: Count
    min: Count = 0
    template: NodeTemplate | None = None
    price: Price = 0.0
    priority: int = 0
    startup_delay: timedelta = timedelta(seconds=60)


class AutoscaleConfig(msgspec.Struct, frozen=True, rename="camel"):
    """An autoscaler's pools and settings; the defaults are Cluster Autoscaler's.

    expander: chooses among pools that help, those listed later where earlier ones tie, and at last
    at random. mode: `karpenter` consolidates as Karpenter does: nodes are removed after
    consolidateAfter, whatever their utilization, or replaced by one that is cheaper.
    """

    pools: tuple[ScaledPool, ...]
    api_version: str = API_VERSION
    kind: str = KIND
    mode: Mode = "cluster-autoscaler"
    expander: tuple[Expander, ...] = ("least-waste",)
    scan_interval: timedelta = timedelta(seconds=10)
    scale_down_enabled: bool = True
    scale_down_utilization_threshold: Share = 0.5
    scale_down_unneeded_time: timedelta = timedelta(minutes=10)
    scale_down_delay_after_add: timedelta = timedelta(minutes=10)
    max_empty_bulk_delete: Count = 10
    skip_nodes_with_system_pods: bool = True
    skip_nodes_with_local_storage: bool = True
    consolidate_after: timedelta = timedelta(0)


def read_autoscale(text: str | bytes, source: str) -> AutoscaleConfig:
    """Decode an autoscale file; raises ConfigError with every mistake and its path."""
    problems = Problems()
    trees = documents(text, problems)
    if len(trees) != 1 and not problems.found:
        problems.add("document", f"{len(trees)} documents", f"one of kind {KIND}")
    found = decode(trees[0], AutoscaleConfig, "", problems) if len(trees) == 1 else INVALID
    if found is not INVALID:
        _check(found, problems)
    if problems.found or found is INVALID:
        raise problems.error(source)
    return found


def _check(found: AutoscaleConfig, problems: Problems) -> None:
    """Add the problems that types do not exclude."""
    if found.api_version != API_VERSION:
        problems.add("apiVersion", repr(found.api_version), API_VERSION)
    if found.kind != KIND:
        problems.add("kind", repr(found.kind), KIND)
    if not found.pools:
        problems.add("pools", "none", "at least one pool")
    if not found.expander:
        problems.add("expander", "none", f"at least one of {', '.join(EXPANDERS)}")
    if found.scan_interval <= timedelta(0):
        problems.add("scanInterval", str(found.scan_interval), "more than 0s")
    names = [pool.name for pool in found.pools]
    for i, pool in enumerate(found.pools):
        path = f"pools[{i}]"
        if not _NAME.fullmatch(pool.name):
            wanted = "lower-case letters, digits, '-' and '.'"
            problems.add(f"{path}.name", repr(pool.name), wanted)
        if names.index(pool.name) != i:
            problems.add(f"{path}.name", repr(pool.name), "each pool once")
        if pool.min > pool.max:
            problems.add(f"{path}.min", str(pool.min), f"at most max, {pool.max}")
        for resource, quantity in (pool.template.allocatable if pool.template else {}).items():
            try:
                amount(resource, quantity)
            except QuantityError as error:
                problems.add(f"{path}.template.allocatable.{resource}", repr(quantity), str(error))


class PoolNodes(msgspec.Struct, frozen=True):
    """A pool with the nodes that it adds: like `template`, each with `daemons`."""

    pool: ScaledPool
    template: Node
    daemons: tuple[Pod, ...] = ()

    def daemon_pods(self, node: Node) -> list[Pod]:
        """The pods that run on every node of the pool, on one node."""
        return [daemon_on(node.name, pod) for pod in self.daemons]

    def new_nodes(self, is_taken: Callable[[str], bool]) -> Iterator[Node]:
        """New nodes without end, with names that are not taken."""
        names = (f"{self.pool.name}-auto-{number}" for number in count(1))
        return (self.new_node(name) for name in names if not is_taken(name))

    def new_node(self, name: str) -> Node:
        """A new node of this name."""
        labels = {**self.template.labels, HOSTNAME_LABEL: name}
        meta = msgspec.structs.replace(self.template.metadata, name=name, labels=labels)
        return msgspec.structs.replace(self.template, metadata=meta)


def pool_templates(
    config: AutoscaleConfig, nodes: Sequence[Node], bound: Sequence[Pod], source: str = "autoscale"
) -> list[PoolNodes]:
    """What each pool adds; raises ConfigError for a pool without a template and without nodes."""
    problems = Problems()
    known = {pool_of(one.templates[0]): one for one in pools_of(nodes, bound, {})}
    found = []
    for i, pool in enumerate(config.pools):
        if pool.template is not None:
            found.append(PoolNodes(pool, _template_node(pool, pool.template)))
        elif pool.name in known:
            like = known[pool.name]
            found.append(PoolNodes(pool, like.templates[0], like.daemons))
        else:
            wanted = f"a template, or one of the cluster's pools: {', '.join(sorted(known))}"
            problems.add(f"pools[{i}].template", "none", wanted)
    if problems.found:
        raise problems.error(source)
    return found


def with_all_nodes(cluster: Cluster, config: AutoscaleConfig) -> Cluster:
    """The cluster with every pool at its maximum, with the DaemonSet pods of new nodes; raises as
    `pool_templates`."""
    sizes = Counter(map(pool_of, cluster.nodes))
    nodes, pods = list(cluster.nodes), list(cluster.pods)
    names = {node.name for node in nodes}
    for one in pool_templates(config, cluster.nodes, cluster.bound()):
        fresh = one.new_nodes(names.__contains__)
        for node in islice(fresh, max(one.pool.max - sizes[one.pool.name], 0)):
            nodes.append(node)
            pods += one.daemon_pods(node)
    return msgspec.structs.replace(cluster, nodes=nodes, pods=pods)


def _template_node(pool: ScaledPool, template: NodeTemplate) -> Node:
    labels = {POOL_LABELS[0]: pool.name, **template.labels}
    taints = tuple(Taint(one.key, one.value, one.effect) for one in template.taints)
    offered: dict[str, str | int | float] = {"pods": "110", **template.allocatable}
    status = NodeStatus(allocatable=offered, capacity=offered)
    return Node(ObjectMeta(name=pool.name, labels=labels), NodeSpec(taints=taints), status)
