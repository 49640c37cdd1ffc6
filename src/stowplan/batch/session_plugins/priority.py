"""priority: jobs and tasks of higher priority are served first.

Source: kube-batch v0.5, plugins/priority.
"""

from __future__ import annotations

from stowplan.batch.session import Session, SessionPlugin
from stowplan.batch.state.jobs import JobInfo, TaskInfo


class PriorityPlugin(SessionPlugin):
    """Orders jobs by the priority class of their group, and tasks by that of their pods."""

    name = "priority"

    def on_open(self, session: Session) -> None:
        """Register both orders."""
        session.hooks.register(
            "task_order", self.name, self.task_order, key=lambda task: -task.priority
        )
        session.hooks.register("job_order", self.name, self.job_order)

    def task_order(self, first: TaskInfo, second: TaskInfo) -> int:
        """The higher priority goes first."""
        return (second.priority > first.priority) - (second.priority < first.priority)

    def job_order(self, first: JobInfo, second: JobInfo) -> int:
        """The higher priority goes first."""
        return (second.priority > first.priority) - (second.priority < first.priority)
