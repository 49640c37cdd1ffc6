"""Scale-down as Cluster Autoscaler decides it: which nodes are unneeded, and where their pods go.

Source: kubernetes/autoscaler, cluster-autoscaler/FAQ.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.columns.nodeinfo import allocatable_amounts
from stowplan.cycle.explanation import pending_form
from stowplan.insight.autoscaling.autoscale_config import AutoscaleConfig, PoolNodes
from stowplan.insight.capacity.allowed_disruptions import Budgets
from stowplan.insight.capacity.pools import runs_on_every_node
from stowplan.insight.cluster_copy import ClusterCopy
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests
from stowplan.plugins.preemption.disruption_budgets import pdb_selects

PREFIX = "cluster-autoscaler.kubernetes.io"
DISABLED = f"{PREFIX}/scale-down-disabled"
SAFE_TO_EVICT = f"{PREFIX}/safe-to-evict"
SAFE_VOLUMES = f"{PREFIX}/safe-to-evict-local-volumes"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
SYSTEM_NAMESPACE = "kube-system"


class Unneeded(NamedTuple):
    """A node that can go. pods: those that move elsewhere; none of an empty node. utilization: the
    larger requested share of CPU and memory."""

    node: str
    pods: tuple[Pod, ...]
    utilization: float

    @property
    def is_empty(self) -> bool:
        """True when only pods run there that run on every node."""
        return not self.pods


def unneeded_nodes(
    names: Sequence[str], copy: ClusterCopy, budgets: Budgets, config: AutoscaleConfig
) -> list[Unneeded]:
    """The nodes that are unneeded now, empty ones first.

    names: nodes of pools that may shrink. copy: of the cluster; it is changed: nodes that can go
    are cordoned, and their pods moved, so that no two nodes rely on the same free resources.
    """
    found: list[Unneeded] = []
    candidates = []
    for name in names:
        row = copy.table.row(name)
        node = copy.table.nodes[row]
        pods = [info.pod for info in copy.table.pods[row]]
        share = utilization(node, pods)
        moving = tuple(pod for pod in pods if not runs_on_every_node(pod))
        if _may_go(node, share, config) and not any(
            keeps_node(pod, budgets, config) for pod in moving
        ):
            order = bool(moving), _disruption(moving, config), name
            candidates.append((order, moving, share, node))
    receiving: set[str] = set()
    for order, moving, share, node in sorted(candidates, key=lambda one: one[0]):
        name = order[2]
        if name in receiving:
            continue
        homes = _moved(node, moving, copy)
        if homes is not None:
            receiving.update(homes)
            found.append(Unneeded(name, moving, share))
    return found


def _may_go(node: Node, share: float, config: AutoscaleConfig) -> bool:
    if config.mode == "karpenter":
        return node.metadata.annotations.get(DO_NOT_DISRUPT) != "true"
    if node.metadata.annotations.get(DISABLED) == "true":
        return False
    return share < config.scale_down_utilization_threshold


def _disruption(pods: Sequence[Pod], config: AutoscaleConfig) -> int:
    """Order of the candidates: Karpenter disrupts few pods first; else the nodes' order counts."""
    return len(pods) if config.mode == "karpenter" else 0


def utilization(node: Node, pods: Sequence[Pod]) -> float:
    """The larger requested share of CPU and memory, pods of DaemonSets included."""
    offered = allocatable_amounts(node)
    shares = []
    for name in ("cpu", "memory"):
        asked = sum(fit_requests(pod).get(name, 0) for pod in pods)
        there = offered.get(name, 0)
        shares.append(asked / there if there else 0.0)
    return max(shares)


def keeps_node(pod: Pod, budgets: Budgets, config: AutoscaleConfig) -> str:
    """Why a pod keeps its node from being removed, "" when it does not."""
    annotations = pod.metadata.annotations
    if config.mode == "karpenter":
        if annotations.get(DO_NOT_DISRUPT) == "true":
            return f"pod {pod.key} has {DO_NOT_DISRUPT}"
        return budgets.blocking(pod)
    safe = annotations.get(SAFE_TO_EVICT)
    if safe == "false":
        return f"pod {pod.key} is not safe to evict"
    blocked = budgets.blocking(pod)
    if blocked or safe == "true":
        return blocked
    return next(filter(None, (rule(pod, budgets, config) for rule in RULES)), "")


def _without_controller(pod: Pod, budgets: Budgets, config: AutoscaleConfig) -> str:
    return f"pod {pod.key} has no controller" if pod.controller is None else ""


def _of_the_system(pod: Pod, budgets: Budgets, config: AutoscaleConfig) -> str:
    if not config.skip_nodes_with_system_pods or pod.namespace != SYSTEM_NAMESPACE:
        return ""
    has_budget = any(pdb_selects(budget, pod) for budget in budgets.budgets)
    return "" if has_budget else f"pod {pod.key} is in {SYSTEM_NAMESPACE} without a budget"


def _with_local_storage(pod: Pod, budgets: Budgets, config: AutoscaleConfig) -> str:
    if not config.skip_nodes_with_local_storage:
        return ""
    safe = pod.metadata.annotations.get(SAFE_VOLUMES, "").split(",")
    for volume in pod.spec.volumes:
        is_local = volume.host_path is not None or (
            volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
        )
        if is_local and volume.name not in safe:
            return f"pod {pod.key} has local storage in volume {volume.name}"
    return ""


RULES: tuple[Callable[[Pod, Budgets, AutoscaleConfig], str], ...] = (
    _without_controller,
    _of_the_system,
    _with_local_storage,
)
"""Rules that `safe-to-evict: "true"` overrides."""


class Replacement(NamedTuple):
    """A node that one cheaper node can take the place of."""

    node: str
    pods: tuple[Pod, ...]
    pool: PoolNodes


def cheaper_replacement(
    names: Sequence[str],
    copy: ClusterCopy,
    budgets: Budgets,
    config: AutoscaleConfig,
    cheaper_than: Callable[[str], Sequence[PoolNodes]],
) -> Replacement | None:
    """The first node, few pods first, whose pods fit on other nodes and one new cheaper one.

    copy: of the cluster; it is as before afterwards. cheaper_than: the pools with room whose nodes
    cost less than a node, the cheapest first. Source: Karpenter, docs/concepts/disruption.
    """
    candidates = []
    for name in names:
        row = copy.table.row(name)
        pods = [info.pod for info in copy.table.pods[row]]
        moving = tuple(pod for pod in pods if not runs_on_every_node(pod))
        keeps = any(keeps_node(pod, budgets, config) for pod in moving)
        if moving and not keeps and _may_go(copy.table.nodes[row], 0.0, config):
            candidates.append((len(moving), name, moving))
    for _, name, moving in sorted(candidates, key=lambda one: one[:2]):
        for pool in cheaper_than(name):
            if _fit_with_new_node(name, moving, pool, copy):
                return Replacement(name, moving, pool)
    return None


def _fit_with_new_node(name: str, pods: Sequence[Pod], pool: PoolNodes, copy: ClusterCopy) -> bool:
    """Whether the pods fit elsewhere with one new node of a pool."""
    table = copy.table
    fresh = next(pool.new_nodes(lambda taken: table.row(taken) >= 0))
    node = table.nodes[table.row(name)]
    daemons = pool.daemon_pods(fresh)
    table.add_node(fresh)
    for pod in daemons:
        table.add_pod(pod)
    homes = _moved(node, pods, copy)
    if homes is not None:
        for pod in pods:
            copy.remove(pod)
            table.add_pod(pod)
        table.update_node(node)
    for pod in daemons:
        copy.remove(pod)
    table.remove_node(fresh.name)
    return homes is not None


def _moved(node: Node, pods: Sequence[Pod], copy: ClusterCopy) -> list[str] | None:
    """Move the pods of a node, which is cordoned; their new nodes. None, and the copy as before,
    when one of them fits nowhere."""
    table = copy.table
    table.update_node(replace(node, spec=replace(node.spec, unschedulable=True)))
    homes: list[str] = []
    for pod in pods:
        copy.remove(pod)
        home = copy.place([pending_form(pod)])[0].node_name
        if not home:
            table.add_pod(pod)
            for other in pods[: len(homes)]:
                copy.remove(other)
                table.add_pod(other)
            table.update_node(node)
            return None
        homes.append(home)
    return homes
