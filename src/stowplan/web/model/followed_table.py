"""A node table that follows lists of nodes and pods, at the cost of what differs.

For questions about a live cluster: the scheduler's own table changes while they are answered.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.columns.nodetable import NodeTable
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class FollowedTable:
    """Objects are compared by identity: a watch replaces what has changed. n_changed: objects that
    the last `follow` has added, replaced or removed."""

    def __init__(self) -> None:
        self.table = NodeTable()
        self.n_changed = 0
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}

    def follow(self, nodes: Iterable[Node], pods: Iterable[Pod]) -> NodeTable:
        """The table with these nodes and those of the pods that have a node and are not
        finished."""
        self.n_changed = 0
        bound = {pod.uid: pod for pod in pods if pod.node_name and not pod.is_finished}
        for uid in self._pods.keys() - bound.keys():
            self._remove(uid)
        self._take_nodes({node.name: node for node in nodes})
        for uid, pod in bound.items():
            known = self._pods.get(uid)
            if known is pod:
                continue
            if known is not None and known.node_name != pod.node_name:
                self._remove(uid)
                known = None
            if known is None:
                self.table.add_pod(pod)
            else:
                self.table.update_pod(pod)
            self._pods[uid] = pod
            self.n_changed += 1
        self.table.refresh()
        return self.table

    def _take_nodes(self, nodes: dict[str, Node]) -> None:
        for name in self._nodes.keys() - nodes.keys():
            self.table.remove_node(name)
            self.n_changed += 1
        for name, node in nodes.items():
            known = self._nodes.get(name)
            if known is node:
                continue
            if known is None:
                self.table.add_node(node)
            else:
                self.table.update_node(node)
            self.n_changed += 1
        self._nodes = nodes

    def _remove(self, uid: str) -> None:
        self.table.remove_pod(uid)
        del self._pods[uid]
        self.n_changed += 1
