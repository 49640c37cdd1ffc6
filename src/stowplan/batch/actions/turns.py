"""Whose turn it is: queues, jobs and tasks in the order in which actions serve them."""

from __future__ import annotations

from stowplan.batch.heap import Heap
from stowplan.batch.jobs import Job, TaskStatus
from stowplan.batch.session import Session
from stowplan.batch.tiers import TaskTurns


class Turns:
    """Per queue its waiting jobs, per job its pending tasks.

    Tasks are put in order when their job is first asked for: nobody has served one of them before.
    """

    def __init__(self, session: Session) -> None:
        self._hooks = session.hooks
        self._tasks: dict[str, TaskTurns] = {}
        self.jobs: dict[str, Heap[Job]] = {}
        self.waiting: list[Job] = []
        for job in session.jobs.values():
            if TaskStatus.PENDING not in job.by_status or job.queue not in session.queues:
                continue
            if job.queue not in self.jobs:
                self.jobs[job.queue] = Heap(session.hooks.job_less)
            self.jobs[job.queue].push(job)
            self.waiting.append(job)

    def tasks(self, job: Job) -> TaskTurns:
        """The pending tasks of a job that had no turn yet."""
        found = self._tasks.get(job.uid)
        if found is None:
            pending = job.of(TaskStatus.PENDING).values()
            found = self._tasks[job.uid] = self._hooks.task_turns(pending)
        return found
