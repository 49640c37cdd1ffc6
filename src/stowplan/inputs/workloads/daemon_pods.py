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
from stowplan.objects.taints import HARD_EFFECTS, is_tolerated

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
HOST_NETWORK_TOLERATION = Toleration(
    key=_CONDITION + "network-unavailable", operator="Exists", effect="NoSchedule"
)


def with_daemon_tolerations(spec: PodSpec) -> PodSpec:
    """A DaemonSet's pod spec with the tolerations of its pods."""
    added = DAEMON_TOLERATIONS + ((HOST_NETWORK_TOLERATION,) if spec.host_network else ())
    missing = tuple(toleration for toleration in added if toleration not in spec.tolerations)
    return replace(spec, tolerations=spec.tolerations + missing)


def should_run_on(spec: PodSpec, node: Node) -> bool:
    """True when a DaemonSet with this pod spec runs a pod on `node`."""
    if spec.node_name not in ("", node.name):
        return False
    wanted = spec.node_selector or {}
    if any(node.labels.get(key) != text for key, text in wanted.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    if required is not None and not node_selector_matches(required, node.labels, node.name):
        return False
    hard = (taint for taint in node.taints if taint.effect in HARD_EFFECTS)
    return all(is_tolerated(taint, spec.tolerations) for taint in hard)


def pin_to_node(spec: PodSpec, node: Node) -> PodSpec:
    """The spec with required node affinity replaced by the name of `node`."""
    field = NodeSelectorRequirement(key=NODE_NAME_FIELD, operator="In", values=(node.name,))
    term = NodeSelectorTerm(match_fields=(field,))
    affinity = spec.affinity or Affinity()
    of_node = affinity.node_affinity or NodeAffinity()
    of_node = replace(of_node, required=NodeSelector(node_selector_terms=(term,)))
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
