"""resume: before all else, jobs that an earlier session has begun with.

Jobs of which a member could not be bound go first. Then those to which room was promised that was
being freed: what is free by now they get, wherever it is, and what is not stays promised, so that
nobody comes between a victim and the pod it went for. Who finds neither is free to look elsewhere.

Sessions hold it by themselves; no configuration names it. The original forgets what it promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from stowplan.batch.heap import Heap
from stowplan.batch.jobs import Job, Task, TaskStatus
from stowplan.batch.rules import Unanswerable
from stowplan.batch.session import Action, Session
from stowplan.batch.statement import Statement


class Resume(Action):
    """Go on with what was begun."""

    name = "resume"

    def run(self, session: Session) -> None:
        """Serve the jobs in a hurry, then those with promises in their order."""
        working = session.working
        known = [session.jobs[uid] for uid in working.promised if uid in session.jobs]
        holds = {job.uid: list(_held(session, job)) for job in known}
        for uid, n_least in working.first.items():
            if uid in session.jobs:
                _let_go(session, holds.pop(uid, ()))
                _serve(session, session.jobs[uid], {}, n_least=n_least)
        jobs: Heap[Job] = Heap(session.hooks.job_less, known)
        while jobs:
            job = jobs.pop()
            _let_go(session, holds.pop(job.uid, ()))
            _serve(session, job, working.promised[job.uid])


def _held(session: Session, job: Job) -> Iterator[tuple[int, Task]]:
    """Hold what was promised to a job against those that are served before it: (row, task)."""
    nodes = session.working.nodes
    for uid, node in session.working.promised[job.uid].items():
        row, task = nodes.row(node), job.of(TaskStatus.PENDING).get(uid)
        if task is None or not nodes.is_there(row):
            continue
        stand_in = task.copy()
        stand_in.status = TaskStatus.PIPELINED
        if not nodes.add(row, stand_in):
            session.working.capabilities.hold(task)
            yield row, task


def _let_go(session: Session, holds: Iterable[tuple[int, Task]]) -> None:
    for row, task in holds:
        session.working.nodes.remove(row, task.key)
        session.working.capabilities.let_go(task)


def _serve(session: Session, job: Job, promised: Mapping[str, str], *, n_least: int = 0) -> None:
    """Place the tasks with promises, or where `n_least` is given so many and as many as the job
    needs to be ready, if with them it can start."""
    statement = session.statement()
    pending = job.of(TaskStatus.PENDING).values()
    turns = session.hooks.task_turns(t for t in pending if n_least or t.uid in promised)
    wanted = job.ready_count + n_least
    while turns:
        if n_least and job.ready_count >= wanted and session.hooks.job_ready(job):
            break
        task = turns.pop()
        _place(session, statement, task, session.working.nodes.row(promised.get(task.uid, "")))
    if session.hooks.job_ready(job):
        statement.commit()
    elif not session.hooks.job_pipelined(job):
        statement.rollback()
    n_promised = len(job.of(TaskStatus.PIPELINED))
    if n_promised:
        job.complaint = f"{n_promised} pods wait for room that is being freed"


def _place(session: Session, statement: Statement, task: Task, promised: int) -> None:
    """Room that is free, best where it was promised (a row, -1 for none); else the promise, if it
    can still be kept."""
    nodes = session.working.nodes
    row = np.array([promised], dtype=np.int64)
    suits = nodes.is_there(promised) and bool(session.hooks.passing(task, row)[0])
    capabilities = session.working.capabilities
    if suits and nodes.fits_idle(task, row)[0] and capabilities.allows(task):
        statement.allocate(task, promised)
        return
    try:
        best = session.choices.best(task)
    except Unanswerable:
        best = -1
    if best >= 0:
        statement.allocate(task, best)
    elif suits and nodes.fits_future(task, row)[0] and capabilities.allows(task, later=True):
        statement.pipeline(task, promised)
