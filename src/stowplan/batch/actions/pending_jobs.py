"""PendingJobs: queues, jobs and tasks in the order in which actions serve them."""

from __future__ import annotations

from collections.abc import Hashable

from stowplan.batch.session import Session
from stowplan.batch.state.jobs import JobInfo
from stowplan.batch.tiers import TaskQueue
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus


class PendingJobs:
    """Pending jobs per queue and pending tasks per job.

    Tasks are sorted when their job is first served, since none of them is served before that.
    """

    def __init__(self, session: Session) -> None:
        self._hooks = session.hooks
        self._tasks: dict[str, TaskQueue] = {}
        self.jobs: dict[str, Heap[JobInfo]] = {}
        self.waiting: list[JobInfo] = []
        for job in session.jobs.values():
            if TaskStatus.PENDING not in job.by_status or job.queue not in session.queues:
                continue
            if job.queue not in self.jobs:
                self.jobs[job.queue] = Heap(session.hooks.job_less)
            self.jobs[job.queue].push(job)
            self.waiting.append(job)

    def tasks(self, job: JobInfo) -> TaskQueue:
        """The job's pending tasks that were not tried yet."""
        found = self._tasks.get(job.uid)
        if found is None:
            found = self._tasks[job.uid] = self._hooks.job_turns(job)
        return found


def attempt_key(session: Session, job: JobInfo, n_tasks: int) -> Hashable:
    """Key of jobs that a turn treats alike as long as nothing changes on nodes; None for jobs whose
    pods differ or depend on more than their own node. n_tasks: tasks that are still to be tried.

    Jobs of a queue with a capability only equal jobs of the same queue.
    """
    kind = None
    nodes = session.state.nodes
    for task in job.of(TaskStatus.PENDING).values():
        if kind is None:
            spec, kind = task.pod.spec, session.best_nodes.row_kind(task)
            cards = nodes.cards.request(task)
        if kind is None or task.pod.spec is not spec or nodes.cards.request(task) != cards:
            return None
    if kind is None:
        return None
    limited = job.queue if session.state.capabilities.is_limited(job.queue) else None
    sizes = (n_tasks, job.ready_count, job.min_available, len(job.tasks))
    return (kind, nodes.wants(task), *sizes, limited)
