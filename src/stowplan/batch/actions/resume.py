"""resume: serve jobs that an earlier session has begun before all others.

Jobs with a member whose bind failed come first. Then jobs with nominated pods, whose resources are
being freed: such a pod is placed on any node with idle resources, or else keeps its nomination, so
that no other pod takes the resources of its victims. Jobs that get neither are served by the other
actions.

Sessions run it by themselves; configurations do not name it. Differs: the original forgets
nominations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from stowplan.batch.session import Session, SessionAction
from stowplan.batch.session_rules import ScoringError
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.statement import Statement
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus


class Resume(SessionAction):
    """Continues what earlier sessions have begun."""

    name = "resume"

    def run(self, session: Session) -> None:
        """Serve jobs with failed binds, then jobs with nominated pods, in job order."""
        state = session.state
        known = [session.jobs[uid] for uid in state.nominations if uid in session.jobs]
        holds = {job.uid: list(_hold_nominations(session, job)) for job in known}
        for uid, n_least in state.first.items():
            if uid in session.jobs:
                _release_holds(session, holds.pop(uid, ()))
                _serve(session, session.jobs[uid], {}, n_least=n_least)
        jobs: Heap[JobInfo] = Heap(session.hooks.job_less, known)
        while jobs:
            job = jobs.pop()
            _release_holds(session, holds.pop(job.uid, ()))
            _serve(session, job, state.nominations[job.uid])


def _hold_nominations(session: Session, job: JobInfo) -> Iterator[tuple[int, TaskInfo]]:
    """Hold the nominated nodes of a job's tasks against jobs served earlier: (row, task)."""
    nodes = session.state.nodes
    for uid, node in session.state.nominations[job.uid].items():
        row, task = nodes.row(node), job.of(TaskStatus.PENDING).get(uid)
        if task is None or not nodes.has_ready_node(row):
            continue
        if nodes.hold(row, task):
            session.state.capabilities.hold(task)
            yield row, task


def _release_holds(session: Session, holds: Iterable[tuple[int, TaskInfo]]) -> None:
    for row, task in holds:
        session.state.nodes.end_hold(row, task)
        session.state.capabilities.give_back(task)


def _serve(
    session: Session, job: JobInfo, nominations: Mapping[str, str], *, n_least: int = 0
) -> None:
    """Place the nominated tasks of a job if it can start with them; with `n_least`, place that many
    and as many as the job needs to be ready."""
    statement = session.statement()
    pending = job.of(TaskStatus.PENDING).values()
    turns = session.hooks.task_turns(t for t in pending if n_least or t.uid in nominations)
    n_needed = job.ready_count + n_least
    while turns:
        if n_least and job.ready_count >= n_needed and session.hooks.job_ready(job):
            break
        task = turns.pop()
        _place(session, statement, task, session.state.nodes.row(nominations.get(task.uid, "")))
    if session.hooks.job_ready(job):
        statement.commit()
    elif not session.hooks.job_pipelined(job):
        statement.rollback()
    n_pipelined = len(job.of(TaskStatus.PIPELINED))
    if n_pipelined:
        job.fit_errors = f"{n_pipelined} pods wait for resources that are being released"


def _place(session: Session, statement: Statement, task: TaskInfo, nominated_row: int) -> None:
    """Place a task on idle resources, preferring the nominated node (a row, -1 for none); else keep
    the nomination if it is still possible."""
    nodes = session.state.nodes
    row = np.array([nominated_row], dtype=np.int64)
    suits = nodes.has_ready_node(nominated_row) and bool(session.hooks.passing(task, row)[0])
    capabilities = session.state.capabilities
    if suits and nodes.fits_idle(task, row)[0] and capabilities.allows(task):
        statement.allocate(task, nominated_row)
        return
    try:
        best = session.best_nodes.best(task)
    except ScoringError:
        best = -1
    if best >= 0:
        statement.allocate(task, best)
    elif suits and nodes.fits_future(task, row)[0] and capabilities.allows(task, later=True):
        statement.pipeline(task, nominated_row)
