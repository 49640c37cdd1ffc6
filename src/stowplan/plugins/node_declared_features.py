"""NodeDeclaredFeatures: pods that need a kubelet feature go to nodes that declare it.

Source: kube-scheduler v1.36, plugins/nodedeclaredfeatures and component-helpers
nodedeclaredfeatures.
"""

from __future__ import annotations

from stowplan.columns.array_types import Bools
from stowplan.framework import OK, SKIP, Handle, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.clusterevents import NODE, POD, Action, QueueingHint, RegisteredEvents, on
from stowplan.framework.plugin import Plugin
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, PodSpec
from stowplan.plugins.pod_hints import queueing_hint

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"


class NodeDeclaredFeatures:
    """Filter on `status.declaredFeatures` of nodes."""

    name = "NodeDeclaredFeatures"
    declaration = Plugin(name=name, reads=(), row_local=True, node_only=True, by_outline=True)
    # Unresolvable: features come with the kubelet; no eviction changes them.
    REJECTED = unresolvable("node(s) didn't match Pod's required features")

    def __init__(self, handle: Handle) -> None:
        self._is_enabled = handle.gates.node_declared_features

    def required(self, pod: Pod) -> tuple[str, ...]:
        """The features that a node must declare for `pod`."""
        return required_features(pod.spec) if self._is_enabled else ()

    def pre_filter(self, pod: Pod) -> Status:
        """Skip for pods that need no feature."""
        return OK if self.required(pod) else SKIP

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where every required feature is declared."""
        declared = node.node.status.declared_features
        return OK if all(f in declared for f in self.required(pod)) else self.REJECTED

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        return nodes.features.has_all(self.required(pod), rows)

    def explain(self, pod: Pod, node: NodeInfo) -> list[str]:
        """The features that the node does not declare."""
        declared = node.node.status.declared_features
        return [f"feature {f} is not declared" for f in self.required(pod) if f not in declared]

    def events_to_register(self) -> RegisteredEvents:
        """A node is added or declares other features, or the pod needs others."""
        if not self._is_enabled:
            return ()
        return (
            on(NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, _after_node),
            on(POD, Action.UPDATE, self._after_update),
        )

    def _after_update(self, pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queueing_hint(new.uid == pod.uid and self.required(new) != self.required(old))

    def signature(self, pod: Pod) -> object:
        """The required features."""
        return self.required(pod)


def _after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
    declared = None if old is None else old.status.declared_features
    return queueing_hint(declared != new.status.declared_features)


def required_features(spec: PodSpec) -> tuple[str, ...]:
    """The features that a pod needs of its node in order to start there, sorted.

    Other features that nodes declare matter for updates of running pods only.
    """
    features = []
    containers = (*spec.containers, *spec.init_containers)
    if any(r.action == "RestartAllContainers" for c in containers for r in c.restart_policy_rules):
        features.append(RESTART_ALL_CONTAINERS)
    if spec.host_network and spec.host_users is False:
        features.append(USER_NAMESPACES_HOST_NETWORK)
    return tuple(features)
