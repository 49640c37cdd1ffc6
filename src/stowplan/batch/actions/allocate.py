"""allocate: place pending tasks on idle resources, queue by queue and job by job.

A queue gets one turn per job, and a job's turn ends as soon as the job is ready; tasks beyond its
minimum are placed in later turns. Placements of a job that did not become ready are rolled back, so
that it blocks no other job; pipelined tasks keep their nodes.

Source: kube-batch v0.5, actions/allocate.
"""

from __future__ import annotations

from collections.abc import Hashable

from stowplan.batch.actions.pending_jobs import attempt_key
from stowplan.batch.fit_errors import fit_errors, fits_somewhere
from stowplan.batch.session import Session, SessionAction
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.state.task_requests import shortage
from stowplan.batch.statement import Statement
from stowplan.batch.tiers import TaskQueue
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import TaskStatus


class Allocate(SessionAction):
    """Places the tasks that fit."""

    name = "allocate"

    def run(self, session: Session) -> None:
        """Serve queues until each has had its turns."""
        queues: Heap[QueueInfo] = Heap(session.hooks.queue_less)
        jobs: dict[str, Heap[JobInfo]] = {}
        for job in session.jobs.values():
            queue = session.queues.get(job.queue)
            if queue is None or TaskStatus.PENDING not in job.by_status:
                continue
            queues.push(queue)
            if job.queue not in jobs:
                jobs[job.queue] = Heap(session.hooks.job_less)
            jobs[job.queue].push(job)
        tasks: dict[str, TaskQueue] = {}
        while queues:
            queue = queues.pop()
            if session.hooks.overused(queue):
                continue
            waiting = jobs[queue.name]
            if not waiting:
                continue
            job = waiting.pop()
            if job.uid not in tasks:
                tasks[job.uid] = _pending_tasks(session, job)
            if _serve(session, job, tasks[job.uid]):
                waiting.push(job)
            queues.push(queue)
        _note_overused(session)


def _note_overused(session: Session) -> None:
    """Report to jobs of overused queues why they were not served, unless no node would fit
    anyway."""
    texts: dict[str, str] = {}
    has_room: dict[Hashable, bool] = {}
    for job in session.jobs.values():
        if job.fit_errors or job.short_by or TaskStatus.PENDING not in job.by_status:
            continue
        queue = session.queues[job.queue]
        if queue.name not in texts:
            texts[queue.name] = session.hooks.why_overused(queue)
        pending = job.of(TaskStatus.PENDING).values()
        task = next((task for task in pending if not task.ask.is_best_effort), None)
        if task is None or not texts[queue.name]:
            continue
        case = (task.kind, session.state.nodes.wants(task))
        if queue.weight > 0 and case not in has_room:
            has_room[case] = fits_somewhere(session, task)
        is_reason = queue.weight <= 0 or has_room[case]
        job.fit_errors = texts[queue.name] if is_reason else fit_errors(session, task)


def _pending_tasks(session: Session, job: JobInfo) -> TaskQueue:
    """The job's pending tasks that request resources."""
    return session.hooks.job_turns(job, lambda task: not task.ask.is_best_effort)


def _serve(session: Session, job: JobInfo, tasks: TaskQueue) -> bool:
    """One turn of a job; True if the job is ready and may have another."""
    case = attempt_key(session, job, len(tasks))
    stuck = session.failed_turns.get(case) if case is not None else None
    if stuck is not None and stuck[0] == session.state.nodes.revision:
        job.fit_errors, job.short_by = stuck[1], dict(stuck[2])
        return False
    statement = session.statement()
    infeasible: set[Hashable] = set()
    cards = session.state.nodes.cards
    job.fit_errors, job.short_by = "", {}
    while tasks:
        task = tasks.pop()
        case_of_task = id(task.pod.spec), cards.request(task)
        if case_of_task in infeasible or _place(session, statement, job, task) < 0:
            if _is_out_of_reach(session, job, len(tasks)):
                break
            # Tasks with the same spec would not fit either.
            infeasible.add(case_of_task)
            continue
        if session.hooks.job_ready(job):
            statement.commit()
            return True
    if session.hooks.job_ready(job):
        statement.commit()
    elif not session.hooks.job_pipelined(job):
        statement.rollback()
        if case is not None:
            session.failed_turns[case] = (
                session.state.nodes.revision,
                job.fit_errors,
                dict(job.short_by),
            )
    return False


def _is_out_of_reach(session: Session, job: JobInfo, n_left: int) -> bool:
    """True if the job will not be ready even if all its other tasks are placed."""
    reached = job.ready_count + len(job.of(TaskStatus.PIPELINED)) + n_left
    return reached < job.min_available and not session.hooks.job_ready(job)


def _place(session: Session, statement: Statement, job: JobInfo, task: TaskInfo) -> int:
    """Place a task on the best node; -1 if none fits."""
    row = session.best_nodes.best(task)
    if row >= 0:
        statement.allocate(task, row)
        return row
    nodes = session.state.nodes
    row = session.best_nodes.best(task, later=True) if nodes.has_releases else -1
    if row >= 0:
        refusal = session.state.capabilities.refusal(task)
        if refusal:
            job.fit_errors = refusal
        else:
            job.short_by[nodes.names[row]] = _shortage(session, row, task)
        statement.pipeline(task, row)
    else:
        job.fit_errors = fit_errors(session, task)
    return row


def _shortage(session: Session, row: int, task: TaskInfo) -> ResourceVector:
    idle = session.state.nodes.idle.amount(row)
    return shortage(idle, task.ask.launching)
