"""VolcanoStatement: changes of a session that are committed or undone together.

Source: volcano master of 2026-08-20, pkg/scheduler/framework/statement.go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.framework.deciders.tasks import TaskStatus


class VolcanoOperation(msgspec.Struct, frozen=True):
    """A task went to a status on a node: Releasing, Pipelined or Allocated.

    evicts: it waits for what was evicted for it.
    """

    task: VolcanoTask
    status: TaskStatus
    node: str
    evicts: bool = False


class VolcanoStatement:
    """A ledger of changes."""

    def __init__(self, session: VolcanoSession) -> None:
        self._session = session
        self.operations: list[VolcanoOperation] = []

    def evict(self, task: VolcanoTask) -> None:
        """Evict a task."""
        self.operations.append(VolcanoOperation(task, TaskStatus.RELEASING, task.node))
        self._session.evict(task)

    def allocate(self, task: VolcanoTask, node: VolcanoNode) -> bool:
        """Place a task on what is idle; False if that is refused."""
        return self._place(task, node, TaskStatus.ALLOCATED)

    def pipeline(self, task: VolcanoTask, node: VolcanoNode, *, evicts: bool = False) -> bool:
        """Have a task wait for what is being released; False if that is refused. evicts: something
        was evicted for it."""
        return self._place(task, node, TaskStatus.PIPELINED, evicts)

    def _place(
        self, task: VolcanoTask, node: VolcanoNode, status: TaskStatus, evicts: bool = False
    ) -> bool:
        if not self._session.place(task, node, status):
            return False
        self.operations.append(VolcanoOperation(task, status, node.name, evicts))
        return True

    def discard(self) -> None:
        """Undo all changes, the latest first."""
        for operation in reversed(self.operations):
            if operation.status is TaskStatus.RELEASING:
                self._session.undo_evict(operation.task)
            else:
                self._session.displace(operation.task)
        self.operations = []

    def commit(self) -> None:
        """Carry out evictions and bindings."""
        for i, operation in enumerate(self.operations):
            if operation.status is TaskStatus.RELEASING:
                # What is evicted for a task stands before it.
                after = (one for one in self.operations[i:] if one.evicts)
                preemptor = next((one.task.uid for one in after), "")
                self._session.commit_evict(operation.task, preemptor)
            elif operation.status is TaskStatus.ALLOCATED:
                self._session.bind(operation.task)
            elif operation.evicts:
                self._session.nominations[operation.task.key] = operation.node
        self.operations = []

    def merge(self, other: VolcanoStatement) -> None:
        """Take over the changes of another statement."""
        self.operations += other.operations
        other.operations = []

    def repeat(self, operations: Iterable[VolcanoOperation]) -> bool:
        """Carry out changes that were undone; False if one is refused."""
        for operation in operations:
            task, status = operation.task, operation.status
            if status is TaskStatus.RELEASING:
                self.evict(task)
            elif not self._place(
                task, self._session.nodes[operation.node], status, operation.evicts
            ):
                return False
        return True
