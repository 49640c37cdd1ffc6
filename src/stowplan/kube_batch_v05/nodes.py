"""Nodes and the resources of the tasks on them, as kube-batch v0.5 counts them.

Source: kube-batch v0.5, api/node_info.go.
"""

from __future__ import annotations

from stowplan.framework.deciders.resource_vector import ResourceVector, parse_resources
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.kube_batch_v05.amounts import less_equal, subtract
from stowplan.kube_batch_v05.jobs import KubeBatchTask
from stowplan.objects.node import Node

NOT_READY = "Selected node NotReady"


class KubeBatchNode:
    """A node. node: None while only pods of it are known. is_ready: False for such a node and for
    one whose tasks exceed it; it is in no session. tasks: by key, copies with the status that they
    had when they were added."""

    __slots__ = ("allocatable", "idle", "is_ready", "name", "node", "releasing", "tasks", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.is_ready = False
        self.allocatable = ResourceVector()
        self.idle = ResourceVector()
        self.used = ResourceVector()
        self.releasing = ResourceVector()
        self.tasks: dict[str, KubeBatchTask] = {}

    def set_node(self, node: Node) -> None:
        """The Node object was added or updated. What is being released is counted once more."""
        allocatable = parse_resources(node.status.allocatable)
        if not less_equal(self.used, allocatable):
            self.is_ready = False
            return
        self.is_ready, self.node, self.allocatable = True, node, allocatable
        self.idle, self.used = allocatable.copy(), ResourceVector()
        for task in self.tasks.values():
            if task.status is TaskStatus.RELEASING:
                self.releasing.add(task.ask.running)
            subtract(self.idle, task.ask.running)
            self.used.add(task.ask.running)

    def add(self, task: KubeBatchTask) -> str:
        """Add a copy of a task; returns an error message or "".

        A task that exceeds what is idle is not added, and the node is not ready any more.
        """
        if task.key in self.tasks:
            return f"task <{task.key}> already on node <{self.name}>"
        running = task.ask.running
        if self.node is not None:
            if task.status is TaskStatus.PIPELINED:
                subtract(self.releasing, running)
            elif not less_equal(running, self.idle):
                self.is_ready = False
                return NOT_READY
            else:
                subtract(self.idle, running)
            if task.status is TaskStatus.RELEASING:
                self.releasing.add(running)
            self.used.add(running)
        held = self.tasks[task.key] = task.copy()
        held.node = self.name
        return ""

    def remove(self, key: str) -> str:
        """Remove a task, by the status that it was added with; returns an error message or ""."""
        held = self.tasks.get(key)
        if held is None:
            return f"failed to find task <{key}> on host <{self.name}>"
        running = held.ask.running
        if self.node is not None:
            if held.status is TaskStatus.RELEASING:
                subtract(self.releasing, running)
            if held.status is TaskStatus.PIPELINED:
                self.releasing.add(running)
            else:
                self.idle.add(running)
            subtract(self.used, running)
        del self.tasks[key]
        return ""

    def update(self, task: KubeBatchTask) -> str:
        """Remove a task and add it with its current status."""
        return self.remove(task.key) or self.add(task)

    def copy(self) -> KubeBatchNode:
        """A copy, with the tasks added again one by one; the node must be known."""
        other = KubeBatchNode(self.name)
        assert self.node is not None
        other.set_node(self.node)
        for task in self.tasks.values():
            other.add(task)
        return other
