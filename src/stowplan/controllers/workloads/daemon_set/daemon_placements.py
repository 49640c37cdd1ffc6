"""Nodes and DaemonSets: which node each DaemonSet places a pod on.

Source: kube-controller-manager v1.36, pkg/controller/daemon/daemon_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from stowplan.apis.apps.daemon_pods import (
    should_continue_on,
    should_run_on,
    with_daemon_tolerations,
)
from stowplan.controller_runtime.object_index import Key, split_key
from stowplan.controllers.workloads.daemon_set.daemon_pod_sync import NodePlacement
from stowplan.objects.encoding.json_codec import convert, decode
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node, NodeSpec
from stowplan.objects.pod import PodSpec
from stowplan.objects.store import WatchEvent


class _PlacedDaemonSet(msgspec.Struct):
    """A DaemonSet. spec: of its pods. misscheduled: `status.numberMisscheduled`."""

    spec: PodSpec
    misscheduled: int
    placements: dict[str, NodePlacement]


class DaemonPlacements:
    """Placements of all DaemonSets on all nodes, kept up to date by changes."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._sets: dict[Key, _PlacedDaemonSet] = {}

    def observe_node(self, change: WatchEvent) -> bool:
        """Apply a change of a node; True if its labels or taints changed."""
        name = split_key(change)[1]
        if change.type == "DELETED":
            self._nodes.pop(name, None)
            for each in self._sets.values():
                each.placements.pop(name, None)
            return True
        read = decode(change.value, Node)
        # The rest of a node plays no part, and is large.
        node = Node(
            metadata=ObjectMeta(name=name, labels=read.labels), spec=NodeSpec(taints=read.taints)
        )
        if self._nodes.get(name) == node:
            return False
        self._nodes[name] = node
        for each in self._sets.values():
            each.placements[name] = _placement(each.spec, node)
        return True

    def observe_set(self, change: WatchEvent) -> None:
        """Apply a change of a DaemonSet."""
        key = split_key(change)
        if change.type == "DELETED":
            self._sets.pop(key, None)
            return
        tree = msgspec.json.decode(change.value)
        spec = with_daemon_tolerations(convert(tree["spec"]["template"]["spec"], PodSpec))
        misscheduled = (tree.get("status") or {}).get("numberMisscheduled", 0)
        known = self._sets.get(key)
        if known is not None and known.spec == spec:
            known.misscheduled = misscheduled
            return
        placements = {name: _placement(spec, node) for name, node in self._nodes.items()}
        self._sets[key] = _PlacedDaemonSet(spec, misscheduled, placements)

    def of_set(self, key: Key) -> Mapping[str, NodePlacement]:
        """Placements of a DaemonSet by node, in the order in which nodes came."""
        found = self._sets.get(key)
        return {} if found is None else found.placements

    def concerned_by(self, node: str, scheduled: frozenset[Key]) -> Iterator[Key]:
        """DaemonSets to sync after a change of a node. scheduled: those with a pod there.

        Differs: a deleted node concerns all of them; the original counts it only after the next
        change of a pod.
        """
        for key, each in self._sets.items():
            found = each.placements.get(node)
            has_pod = key in scheduled
            if (
                found is None
                or (found.should_run and not has_pod)
                or (not found.should_continue and has_pod)
                or (has_pod and each.misscheduled > 0)
            ):
                yield key


def _placement(spec: PodSpec, node: Node) -> NodePlacement:
    return NodePlacement(should_run_on(spec, node), should_continue_on(spec, node))
