"""StandaloneInventory: an inventory with its own node table, for sessions without a scheduler."""

from __future__ import annotations

from collections.abc import Collection

from stowplan.batch.state.inventory import Inventory
from stowplan.batch.state.jobs import TaskInfo
from stowplan.columns import NodeTable
from stowplan.framework.deciders.tasks import TERMINATED
from stowplan.objects.node import Node


class StandaloneInventory(Inventory):
    """Jobs, queues and nodes; what a session binds stays on its node.

    nodes: the node table.
    """

    def __init__(self, scheduler_names: Collection[str], default_queue: str = "default") -> None:
        """scheduler_names: one name or several."""
        super().__init__(scheduler_names, default_queue, self._refreshed)
        self.nodes = NodeTable()

    def _refreshed(self) -> NodeTable:
        self.nodes.refresh()
        return self.nodes

    def node_updated(self, node: Node) -> None:
        """A node was added or updated."""
        if self.nodes.row(node.name) < 0:
            self.nodes.add_node(node)
        else:
            self.nodes.update_node(node)

    def node_deleted(self, name: str) -> None:
        """A node was deleted; its pods count again when it returns."""
        if self.nodes.row(name) >= 0:
            self.nodes.remove_node(name)

    def settle(self) -> None:
        """See Inventory.settle; bound pods are counted on their nodes."""
        super().settle()
        for task in self.bound:
            self._counted(task)

    def _counted(self, task: TaskInfo) -> None:
        super()._counted(task)
        if task.node and task.status not in TERMINATED and not self.nodes.knows_pod(task.uid):
            self.nodes.add_pod(task.pod, task.node)

    def _uncounted(self, uid: str) -> None:
        super()._uncounted(uid)
        if self.nodes.knows_pod(uid):
            self.nodes.remove_pod(uid)
