"""VolcanoNode: a node's amounts and tasks in a session.

Source: volcano master of 2026-08-20, pkg/scheduler/api/node_info.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_task import (
    EVICTABLE_STATUSES,
    REVOCABLE_ZONE,
    VolcanoTask,
    sum_of_requests,
)
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.node import Node

_OVERSUBSCRIPTION = {
    "cpu": "volcano.sh/oversubscription-cpu",
    "memory": "volcano.sh/oversubscription-memory",
}
"""Resource -> annotation of a node with the amount that may be used beyond allocatable."""


class VolcanoNode:
    """A node. row: in the node table of the session. tasks: pod key -> task.

    idle: what no task takes; a pipelined task takes nothing that is idle. place, changed: position
    in a session, and the list to which it is added when its amounts change; see FreeColumns.
    """

    __slots__ = (
        "allocatable", "capacity", "changed", "idle", "name", "node", "pipelined", "place",
        "releasing", "revocable_zone", "row", "tasks", "used",
    )  # fmt: skip

    def __init__(self, node: Node, row: int) -> None:
        extra = _oversubscription(node)
        self.name, self.node, self.row = node.name, node, row
        self.allocatable = VolcanoAmount.of(node.status.allocatable).add(extra)
        self.capacity = VolcanoAmount.of(node.status.capacity).add(extra)
        self.idle = self.allocatable.copy()
        self.used = VolcanoAmount()
        self.releasing = VolcanoAmount()
        self.pipelined = VolcanoAmount()
        self.revocable_zone = node.labels.get(REVOCABLE_ZONE, "")
        self.tasks: dict[str, VolcanoTask] = {}
        self.place = -1
        self.changed: list[int] | None = None

    def __repr__(self) -> str:
        return f"VolcanoNode({self.name}, idle {self.idle})"

    def future_idle(self) -> VolcanoAmount:
        """What is idle once releasing tasks are gone and pipelined ones run; a new amount."""
        return self.idle.copy().add(self.releasing).subtract(self.pipelined)

    def has_later(self, request: VolcanoAmount) -> bool:
        """True if a request fits what will be idle."""
        rest = self.releasing, self.pipelined
        if any(one.cpu or one.memory or one.scalars for one in rest):
            return request.fits(self.future_idle())
        return request.fits(self.idle)

    def add(self, task: VolcanoTask) -> bool:
        """Put a task on the node; False if it is on one already."""
        if (task.node and task.node != self.name) or task.key in self.tasks:
            return False
        self._count(task, 1)
        task.node = self.name
        self.tasks[task.key] = task
        return True

    def add_all(self, tasks: Sequence[VolcanoTask]) -> None:
        """Put tasks on the node that name it. As `add` of each, in one step for those of templates
        that run or are bound."""
        plain: list[VolcanoTask] = []
        for task in tasks:
            if task.status in EVICTABLE_STATUSES and task.key not in self.tasks:
                self.tasks[task.key] = task
                plain.append(task)
            else:
                self.add(task)
        if not plain:
            return
        if self.changed is not None:
            self.changed.append(self.place)
        request = sum_of_requests(plain)
        self.idle.subtract(request)
        self.used.add(request)

    def remove(self, task: VolcanoTask) -> None:
        """Take a task off the node, if it is there; its status must be the one it was added
        with."""
        if self.tasks.pop(task.key, None) is not None:
            self._count(task, -1)

    def _count(self, task: VolcanoTask, sign: int) -> None:
        if self.changed is not None:
            self.changed.append(self.place)
        add, take = VolcanoAmount.add, VolcanoAmount.subtract
        if sign < 0:
            add, take = take, add
        if task.status is TaskStatus.PIPELINED:
            add(self.pipelined, task.request)
            return
        take(self.idle, task.request)
        add(self.used, task.request)
        if task.status is TaskStatus.RELEASING:
            add(self.releasing, task.request)

    def copy(self) -> VolcanoNode:
        """A copy with the same tasks, to try changes on."""
        made = VolcanoNode(self.node, self.row)
        for name in ("idle", "used", "releasing", "pipelined"):
            setattr(made, name, getattr(self, name).copy())
        made.tasks = dict(self.tasks)
        return made


def _oversubscription(node: Node) -> VolcanoAmount:
    amounts = {}
    for name, annotation in _OVERSUBSCRIPTION.items():
        text = node.metadata.annotations.get(annotation, "")
        try:
            amounts[name] = float(text) if text else 0.0
        except ValueError:
            amounts[name] = 0.0
    return VolcanoAmount(amounts["cpu"], amounts["memory"])
