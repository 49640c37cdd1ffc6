"""DaemonSets: which nodes get a pod, and the node affinity of that pod.

Source: Kubernetes v1.36, controller/daemon and controller/daemon/util.
"""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.objects.node import Node
from stowplan.objects.pod import Affinity, NodeAffinity, Pod, PodSpec, Toleration
from stowplan.objects.selectors import (
    NODE_NAME_FIELD,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    node_selector_matches,
)
from stowplan.objects.taints import HARD_EFFECTS, is_untolerated

_CONDITION = "node.kubernetes.io/"
DAEMON_TOLERATIONS = tuple(
    Toleration(key=_CONDITION + key, operator="Exists", effect=effect)
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
"""Tolerations of every DaemonSet pod."""
_EVICTING_EFFECTS = frozenset({"NoExecute"})
HOST_NETWORK_TOLERATION = Toleration(
    key=_CONDITION + "network-unavailable", operator="Exists", effect="NoSchedule"
)


def with_daemon_tolerations(spec: PodSpec) -> PodSpec:
    """A DaemonSet's pod spec with the tolerations of its pods."""
    return replace(spec, tolerations=daemon_tolerations(spec))


def daemon_tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    """The tolerations of a DaemonSet's pods; they are permanent, and replace temporary ones."""
    added = DAEMON_TOLERATIONS + ((HOST_NETWORK_TOLERATION,) if spec.host_network else ())
    given = tuple(
        permanent if (permanent := replace(each, toleration_seconds=None)) in added else each
        for each in spec.tolerations
    )
    return given + tuple(each for each in added if each not in given)


def should_run_on(spec: PodSpec, node: Node) -> bool:
    """True when a DaemonSet with this pod spec runs a pod on `node`."""
    return _selects(spec, node) and _tolerates_all(spec, node, HARD_EFFECTS)


def should_continue_on(spec: PodSpec, node: Node) -> bool:
    """True when a pod that runs on `node` already is kept there."""
    return _selects(spec, node) and _tolerates_all(spec, node, _EVICTING_EFFECTS)


def _selects(spec: PodSpec, node: Node) -> bool:
    if spec.node_name not in ("", node.name):
        return False
    wanted = spec.node_selector or {}
    if any(node.labels.get(key) != text for key, text in wanted.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    return required is None or node_selector_matches(required, node.labels, node.name)


def _tolerates_all(spec: PodSpec, node: Node, effects: frozenset[str]) -> bool:
    return not any(is_untolerated(taint, spec.tolerations, effects) for taint in node.taints)


def node_name_selector(name: str) -> NodeSelector:
    """The node selector that matches the node of this name only."""
    field = NodeSelectorRequirement(key=NODE_NAME_FIELD, operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))


def pin_to_node(spec: PodSpec, node: Node) -> PodSpec:
    """The spec with required node affinity replaced by the name of `node`."""
    affinity = spec.affinity or Affinity()
    of_node = affinity.node_affinity or NodeAffinity()
    of_node = replace(of_node, required=node_name_selector(node.name))
    return replace(spec, affinity=replace(affinity, node_affinity=of_node))


def target_node(pod: Pod) -> str:
    """The node of a DaemonSet pod, bound or by node affinity."""
    if pod.node_name:
        return pod.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required.node_selector_terms if affinity and affinity.required else ()
    fields = (field for term in terms for field in term.match_fields)
    names = (f.values for f in fields if f.key == NODE_NAME_FIELD and len(f.values) == 1)
    return next(names, ("",))[0]
