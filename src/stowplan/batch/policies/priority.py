"""priority: what is more important goes first.

Source: kube-batch v0.5, plugins/priority.
"""

from __future__ import annotations

from stowplan.batch.jobs import Job, Task
from stowplan.batch.session import Policy, Session


class Priority(Policy):
    """Order of jobs by the class of their group, of tasks by that of their pods."""

    name = "priority"

    def on_open(self, session: Session) -> None:
        """Register both orders."""
        session.hooks.register(
            "task_order", self.name, self.task_order, key=lambda task: -task.priority
        )
        session.hooks.register("job_order", self.name, self.job_order)

    def task_order(self, first: Task, second: Task) -> int:
        """The higher priority goes first."""
        return (second.priority > first.priority) - (second.priority < first.priority)

    def job_order(self, first: Job, second: Job) -> int:
        """The higher priority goes first."""
        return (second.priority > first.priority) - (second.priority < first.priority)
