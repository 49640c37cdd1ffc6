"""CheckServiceAffinity: pods of a service run on nodes with equal values of some labels.

Source: Kubernetes v1.13, predicates.ServiceAffinity.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.columns.pods.podcounts import MatchingPods, PodSelection, admits
from stowplan.framework import (
    OK,
    CycleState,
    NodeInfo,
    NodeTable,
    PodInfo,
    Rows,
    Snapshot,
    Status,
    unschedulable,
)
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.topology_spread.default_selector import SELECTOR_KINDS
from stowplan.plugins.v1_13.spread_selectors import (
    SpreadSelectors,
    requirements_from_labels,
    selector_from_labels,
)

Peers = list[tuple[str, Mapping[str, str]]]

NO_LABELS: Mapping[str, str] = {}


class ServiceAffinityArgs(PluginArgs, frozen=True):
    """labels: the keys whose values must be equal."""

    labels: tuple[str, ...] = ()


class ServiceAffinityMetadata:
    """Result of PreFilter: the labels that the pod fixes, and the peers whose node has the others.

    peers: (uid, labels of its node) of the pods of the namespace that carry all labels of the pod;
    the first of them counts. None where no peer is needed.
    """

    def __init__(self, pinned: Mapping[str, str], peers: Peers | None) -> None:
        self.pinned = pinned
        self.peers = peers

    def clone(self) -> ServiceAffinityMetadata:
        """A copy that changes independently."""
        return ServiceAffinityMetadata(
            self.pinned, None if self.peers is None else list(self.peers)
        )

    def wanted(self, keys: tuple[str, ...]) -> Mapping[str, str]:
        """The labels that a node must have."""
        there = self.peers[0][1] if self.peers else NO_LABELS
        filled = {key: there[key] for key in keys if key in there}
        return selector_from_labels({**filled, **self.pinned})


class CheckServiceAffinity:
    """Filter on labels that the pod's node selector, or the node of a peer, fixes.

    Differs: of several peers the original takes any, in the order of a Go map; here the oldest
    counts, and of those the first by name.
    """

    name = "CheckServiceAffinity"
    declaration = Plugin(name=name, reads=SELECTOR_KINDS)
    Args = ServiceAffinityArgs
    REJECTED = unschedulable("node(s) didn't match service affinity")

    def __init__(self, args: ServiceAffinityArgs) -> None:
        self.args = args
        # A Policy file may have the predicate under several names, each with labels of its own.
        self._key = f"{self.name}/{'/'.join(args.labels)}"

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Find the labels that the pod fixes, and its peers."""
        selector = pod.spec.node_selector or NO_LABELS
        pinned = {key: selector[key] for key in self.args.labels if key in selector}
        asks = len(self.args.labels) > len(pinned)
        has_service = asks and any(
            True for _ in SpreadSelectors.of(snapshot.object_store).services(pod)
        )
        peers = _peers(pod, snapshot.nodes) if has_service else None
        state.write(self._key, ServiceAffinityMetadata(pinned, peers))
        return OK

    def add_pod(self, pod: Pod, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        """A pod that may be a peer was added to a node: it comes last."""
        peers = state.read(self._key, ServiceAffinityMetadata).peers
        if peers is not None and _selection(pod).takes(info.pod):
            peers.append((info.uid, node.labels))
        return OK

    def remove_pod(self, info: PodInfo, state: CycleState) -> Status:
        """A pod was removed from a node."""
        metadata = state.read(self._key, ServiceAffinityMetadata)
        if metadata.peers is not None:
            metadata.peers = [peer for peer in metadata.peers if peer[0] != info.uid]
        return OK

    def filter(self, node: NodeInfo, state: CycleState) -> Status:
        """Success where the node has the labels."""
        wanted = state.read(self._key, ServiceAffinityMetadata).wanted(self.args.labels)
        alike = admits(requirements_from_labels(wanted), node.labels)
        return OK if alike else self.REJECTED

    def filter_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        passes = np.ones(n_rows_of(rows), dtype=np.bool_)
        for key, value in (
            state.read(self._key, ServiceAffinityMetadata).wanted(self.args.labels).items()
        ):
            passes &= nodes.labels.column(key).where_in((value,), rows)
        return passes

    def explain(self, node: NodeInfo, state: CycleState) -> list[str]:
        """The required labels, and the node's values."""
        wanted = state.read(self._key, ServiceAffinityMetadata).wanted(self.args.labels)
        return [
            f"needs {key}={value}, has {node.labels.get(key, 'no such label')}"
            for key, value in wanted.items()
            if node.labels.get(key) != value
        ]


def _selection(pod: Pod) -> PodSelection:
    """The pods of the namespace that carry all labels of the pod."""
    labels = requirements_from_labels(selector_from_labels(pod.labels))
    return PodSelection(labels, frozenset({pod.namespace}))


def _peers(pod: Pod, nodes: NodeTable) -> Peers:
    """The pod's peers, the oldest first."""
    selection = _selection(pod)
    rows = np.flatnonzero(MatchingPods.of(nodes).counts(selection))
    found: list[tuple[float, str, str, Mapping[str, str]]] = []
    for row in rows.tolist():
        labels = nodes.nodes[row].labels
        for info in nodes.pods[row]:
            if selection.takes(info.pod):
                created = info.pod.metadata.creation_timestamp
                age = 0.0 if created is None else created.timestamp()
                found.append((age, info.pod.name, info.uid, labels))
    found.sort(key=lambda peer: peer[:3])
    return [(uid, labels) for _, _, uid, labels in found]
