"""backfill: place the tasks that ask for nothing; predicates alone say where.

Source: kube-batch v0.5, actions/backfill.
"""

from __future__ import annotations

from stowplan.batch.heap import Heap
from stowplan.batch.jobs import Job, Task, TaskStatus
from stowplan.batch.queues import QueueInfo
from stowplan.batch.session import Action, Session
from stowplan.batch.unfit import complaint


class Backfill(Action):
    """Place what asks for nothing."""

    name = "backfill"

    def run(self, session: Session) -> None:
        """Serve jobs in the order of their queues, or any job first."""
        if session.compat.backfill_unordered:
            for job in list(session.jobs.values()):
                _serve_as_ever(session, job)
            return
        queues: Heap[QueueInfo] = Heap(session.hooks.queue_less)
        jobs: dict[str, Heap[Job]] = {}
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


def _best_effort(job: Job) -> list[Task]:
    return [t for t in job.of(TaskStatus.PENDING).values() if t.ask.is_best_effort]


def _serve_as_ever(session: Session, job: Job) -> None:
    """Put each task on the first node that takes it; a gang that stays incomplete keeps them."""
    nodes = session.working.nodes
    for task in _best_effort(job):
        if not session.working.capabilities.allows(task):
            continue
        passing = session.passing(task)
        for row in range(nodes.n_nodes):
            if not passing[row]:
                continue
            if not session.allocate(task, row):
                break
            # What went wrong has left its traces.
            passing = session.passing(task)


def _serve(session: Session, job: Job) -> None:
    """Put the tasks on the best of the nodes that take them, in the order of tasks, or none."""
    statement = session.statement()
    tasks = session.hooks.task_turns(_best_effort(job))
    while tasks:
        task = tasks.pop()
        row = session.choices.best(task)
        if row < 0:
            job.complaint = complaint(session, task)
            continue
        statement.allocate(task, row)
    if session.hooks.job_ready(job):
        statement.commit()
    elif not session.hooks.job_pipelined(job):
        statement.rollback()
