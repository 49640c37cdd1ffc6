"""preempt: evict less important tasks of a queue for more important ones.

First between jobs: a job that cannot start preempts jobs of lower priority, all in one statement,
so that no task is evicted for a gang that does not become complete. Then within jobs: a pending
task preempts tasks of lower priority of its own job.

Source: kube-batch v0.5, actions/preempt.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import partial

from stowplan.batch.actions.pending_jobs import PendingJobs, attempt_key
from stowplan.batch.actions.victims import VictimSearch, running
from stowplan.batch.session import Session, SessionAction
from stowplan.batch.session_rules import ScoringError
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.statement import Statement
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus

REASON = "preempt"


class Preempt(SessionAction):
    """Frees resources within queues."""

    name = "preempt"

    def run(self, session: Session) -> None:
        """Preempt between the jobs of each queue, then within jobs."""
        turns = PendingJobs(session)
        self._search = VictimSearch(session)
        self._failed_turns: set[Hashable] = set()
        queues = dict.fromkeys(
            job.queue for job in session.jobs.values() if job.queue in session.queues
        )
        heap = Heap(session.hooks.queue_less, (session.queues[name] for name in queues))
        order = [heap.pop().name for _ in queues]
        hopeless = _without_lower(session, turns)
        for name in order:
            if name not in hopeless:
                self._between_jobs(session, turns, name)
        self._within_jobs(session, turns)

    def _between_jobs(self, session: Session, turns: PendingJobs, queue: str) -> None:
        jobs = turns.jobs.get(queue)
        while jobs:
            job = jobs.pop()
            statement = session.statement()
            assigned = False
            tasks = turns.tasks(job)
            case = self._attempt_key(session, job, len(tasks))
            if case is not None and case in self._failed_turns:
                continue
            while tasks:
                if self._serve(session, statement, tasks.pop(), job, within=False):
                    assigned = True
                if session.hooks.job_pipelined(job) and statement.evicts:
                    statement.commit()
                    break
            if not session.hooks.job_pipelined(job) or len(statement):
                statement.rollback()
                if case is not None:
                    self._failed_turns.add(case)
                continue
            if assigned:
                jobs.push(job)

    def _attempt_key(self, session: Session, job: JobInfo, n_tasks: int) -> Hashable:
        """Key of jobs that find the same victims as long as nothing changes; None if unknown."""
        case = attempt_key(session, job, n_tasks)
        if case is None:
            return None
        rank = (job.queue, job.priority, job.allocated.pairs(), session.state.nodes.revision)
        return (case, *rank, session.hooks.job_pipelined(job))

    def _within_jobs(self, session: Session, turns: PendingJobs) -> None:
        for job in turns.waiting:
            if TaskStatus.RUNNING not in job.by_status:
                continue
            # Tasks that found no victims in other jobs are tried again.
            tasks = session.hooks.task_turns(job.of(TaskStatus.PENDING).values())
            while tasks:
                statement = session.statement()
                assigned = self._serve(session, statement, tasks.pop(), job, within=True)
                if not statement.evicts:
                    # Placement without evictions is left to allocate.
                    statement.rollback()
                    break
                statement.commit()
                if not assigned:
                    break

    def _serve(
        self, session: Session, statement: Statement, task: TaskInfo, job: JobInfo, *, within: bool
    ) -> bool:
        """Place a task by preemption; True if it was placed."""
        try:
            return self._make_room(session, statement, task, job, within=within)
        except ScoringError:
            return False

    def _make_room(
        self, session: Session, statement: Statement, task: TaskInfo, job: JobInfo, *, within: bool
    ) -> bool:
        """Place a task with as few victims as possible, of its own job or of others of its
        queue."""
        if task.status is not TaskStatus.PENDING:
            return False
        rank = task.priority if within else job.priority
        key = (job.uid if within else job.queue, rank, within)

        def preemptable_tasks() -> Iterable[TaskInfo]:
            if not within:
                return preemptable_candidates(session, self._search, job, task)
            own = running((job,))
            return (one for one in own if _may_be_taken(session, one, task, within=True))

        candidates = self._search.candidates(key, preemptable_tasks)
        victims = partial(session.hooks.victims, "preemptable")
        return self._search.place(statement, task, candidates, key, victims, REASON)


def preemptable_candidates(
    session: Session, search: VictimSearch, job: JobInfo, task: TaskInfo
) -> Iterator[TaskInfo]:
    """Running tasks of other jobs of the queue that may be preempted for a task of the job, if a
    session plugin allows it."""
    jobs = (
        j for j in search.reclaimable_jobs("preemptable") if j.queue == job.queue and j is not job
    )
    for other in running(jobs):
        if _may_be_taken(session, other, task, within=False):
            yield other


def _without_lower(session: Session, turns: PendingJobs) -> set[str]:
    """Queues without a running job of lower priority than a pending one."""
    lowest: dict[str, int] = {}
    for job in session.jobs.values():
        if TaskStatus.RUNNING in job.by_status:
            lowest[job.queue] = min(lowest.get(job.queue, job.priority), job.priority)
    highest: dict[str, int] = {}
    for job in turns.waiting:
        highest[job.queue] = max(highest.get(job.queue, job.priority), job.priority)
    return {name for name, most in highest.items() if lowest.get(name, most) >= most}


def _may_be_taken(session: Session, other: TaskInfo, task: TaskInfo, *, within: bool) -> bool:
    """True if the task may preempt the other."""
    if within:
        return other.priority < task.priority
    return session.jobs[other.job].priority < session.jobs[task.job].priority
