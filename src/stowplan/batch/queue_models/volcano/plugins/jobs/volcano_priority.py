"""priority: jobs and tasks with a higher priority come first.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/priority/priority.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob, VolcanoSubJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask


class VolcanoPriority(VolcanoPlugin):
    """Order by priority."""

    name = "priority"

    def open(self, session: VolcanoSession) -> None:
        """Keep the session."""
        self._jobs = session.jobs

    def task_order(self, left: VolcanoTask, right: VolcanoTask) -> int:
        """By priority."""
        return right.priority - left.priority

    def job_order(self, left: VolcanoSessionJob, right: VolcanoSessionJob) -> int:
        """By priority."""
        return right.priority - left.priority

    def task_key(self, task: VolcanoTask) -> int:
        """See `task_order`."""
        return -task.priority

    def job_key(self, job: VolcanoSessionJob) -> int:
        """See `job_order`."""
        return -job.priority

    def sub_job_order(self, left: VolcanoSubJob, right: VolcanoSubJob) -> int:
        """By the highest priority of their tasks."""
        return right.priority - left.priority

    def preemptable(self, task: VolcanoTask, others: list[VolcanoTask]) -> list[VolcanoTask]:
        """Tasks of jobs of lower priority; of the same job, tasks of lower priority."""
        own = self._jobs.get(task.job)
        if own is None:
            return []
        victims = []
        for other in others:
            job = self._jobs.get(other.job)
            if job is None:
                continue
            if job.uid != own.uid:
                is_lower = job.priority < own.priority
            else:
                is_lower = other.priority < task.priority
            if is_lower:
                victims.append(other)
        return victims

    def evictable(
        self, job: VolcanoSessionJob, others: list[VolcanoTask], reclaims: bool
    ) -> list[VolcanoTask]:
        """Tasks of jobs of lower priority; between queues all."""
        if reclaims:
            return others
        return [other for other in others if self._jobs[other.job].priority < job.priority]

    def job_starving(self, job: VolcanoSessionJob) -> bool:
        """True if some task is neither placed nor waits."""
        return job.n_ready + job.n_waiting < len(job.tasks)
