"""backfill: place best-effort tasks, which request no resources; only predicates apply.

Source: kube-batch v0.5, actions/backfill.
"""

from __future__ import annotations

from stowplan.batch.fit_errors import fit_errors
from stowplan.batch.session import Session, SessionAction
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.queues import QueueInfo
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus


class Backfill(SessionAction):
    """Places best-effort tasks."""

    name = "backfill"

    def run(self, session: Session) -> None:
        """Serve jobs in queue order."""
        queues: Heap[QueueInfo] = Heap(session.hooks.queue_less)
        jobs: dict[str, Heap[JobInfo]] = {}
        for job in session.jobs.values():
            if not session.has_pending(job) or job.queue not in session.queues:
                continue
            if not _best_effort(job):
                continue
            if job.queue not in jobs:
                jobs[job.queue] = Heap(session.hooks.job_less)
                queues.push(session.queues[job.queue])
            jobs[job.queue].push(job)
        while queues:
            waiting = jobs[queues.pop().name]
            while waiting:
                _serve(session, waiting.pop())


def _best_effort(job: JobInfo) -> list[TaskInfo]:
    return [t for t in job.of(TaskStatus.PENDING).values() if t.ask.is_best_effort]


def _serve(session: Session, job: JobInfo) -> None:
    """Place all the tasks, in task order, on the best nodes that pass, or none of them."""
    statement = session.statement()
    tasks = session.hooks.task_turns(_best_effort(job))
    while tasks:
        task = tasks.pop()
        row = session.best_nodes.best(task)
        if row < 0:
            job.fit_errors = fit_errors(session, task)
            continue
        statement.allocate(task, row)
    if session.hooks.job_ready(job):
        statement.commit()
    elif not session.hooks.job_pipelined(job):
        statement.rollback()
