"""reclaim: a queue below its deserved share evicts tasks of queues above theirs.

Source: kube-batch v0.5, actions/reclaim.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import partial

from stowplan.batch.actions.pending_jobs import PendingJobs, attempt_key
from stowplan.batch.actions.victims import VictimSearch, running
from stowplan.batch.session import Session, SessionAction
from stowplan.batch.session_rules import ScoringError
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.statement import Statement
from stowplan.batch.tiers import TaskQueue
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus

REASON = "reclaim"


class Reclaim(SessionAction):
    """Frees resources across queues."""

    name = "reclaim"

    def run(self, session: Session) -> None:
        """Serve queues that are not overused, one task per turn."""
        turns = PendingJobs(session)
        self._search = VictimSearch(session)
        self._failed_turns: set[Hashable] = set()
        queues: Heap[QueueInfo] = Heap(session.hooks.queue_less)
        for name in dict.fromkeys(job.queue for job in session.jobs.values()):
            if name in session.queues:
                queues.push(session.queues[name])
        while queues:
            queue = queues.pop()
            if session.hooks.overused(queue):
                continue
            jobs = turns.jobs.get(queue.name)
            if not jobs or not self._may_find(session, queue.name):
                continue
            job = jobs.pop()
            tasks = turns.tasks(job)
            if not tasks:
                continue
            if self._serve(session, job, tasks):
                jobs.push(job)
            # Also after a failure: the queue's next job may be smaller.
            queues.push(queue)

    def _may_find(self, session: Session, queue: str) -> bool:
        """False if no other queue has a task that a session plugin might release."""
        return any(reclaimable_jobs(session, self._search, queue))

    def _serve(self, session: Session, job: JobInfo, tasks: TaskQueue) -> bool:
        """One turn of a job: place tasks until the job can start, all or none; one task if it is
        ready."""
        case = attempt_key(session, job, len(tasks))
        if (
            case is not None
            and (case, job.queue, session.state.nodes.revision) in self._failed_turns
        ):
            return False
        statement = session.statement()
        while tasks:
            task = tasks.pop()
            if task.status is not TaskStatus.PENDING:
                continue
            if not self._make_room(session, statement, job, task):
                break
            # Placement without evictions is left to allocate.
            if session.hooks.job_pipelined(job) and statement.evicts:
                statement.commit()
                return True
        statement.rollback()
        if case is not None:
            self._failed_turns.add((case, job.queue, session.state.nodes.revision))
        return False

    def _make_room(
        self, session: Session, statement: Statement, job: JobInfo, task: TaskInfo
    ) -> bool:
        """Place a task with as few victims of other queues as possible."""
        if session.state.capabilities.shortage(task):
            # Pods of other queues do not count towards this queue's capability.
            return False

        def others() -> Iterable[TaskInfo]:
            return running(reclaimable_jobs(session, self._search, job.queue))

        candidates = self._search.candidates(job.queue, others)
        victims = partial(session.hooks.victims, "reclaimable")
        try:
            return self._search.place(statement, task, candidates, job.queue, victims, REASON)
        except ScoringError:
            return False


def reclaimable_jobs(session: Session, search: VictimSearch, queue: str) -> Iterator[JobInfo]:
    """Jobs of other queues of which a session plugin might release a pod."""
    for job in search.reclaimable_jobs("reclaimable"):
        theirs = session.queues.get(job.queue)
        if job.queue != queue and (theirs is None or theirs.is_reclaimable):
            yield job
