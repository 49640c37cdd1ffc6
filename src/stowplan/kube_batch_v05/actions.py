"""Actions: allocate, backfill, preempt and reclaim.

Source: kube-batch v0.5, actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cmp_to_key

from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.kube_batch_v05.amounts import is_empty, less, less_equal, shortage
from stowplan.kube_batch_v05.jobs import KubeBatchJob, KubeBatchTask
from stowplan.kube_batch_v05.nodes import KubeBatchNode
from stowplan.kube_batch_v05.pod_affinity import AffinityError
from stowplan.kube_batch_v05.session import KubeBatchSession, KubeBatchStatement
from stowplan.kube_batch_v05.session_cache import KubeBatchQueue
from stowplan.kube_batch_v05.tiers import running_on


def _last_first(session: KubeBatchSession, tasks: Iterable[KubeBatchTask]) -> list[KubeBatchTask]:
    """Tasks in reverse task order, so that `pop` takes the first."""
    task_less = session.functions.task_less

    def compare(first: KubeBatchTask, second: KubeBatchTask) -> int:
        return task_less(first, second) - task_less(second, first)

    return sorted(tasks, key=cmp_to_key(compare))


# allocate.


def allocate(session: KubeBatchSession) -> None:
    """Serve queues until each has had a turn per job.

    What an incomplete gang is given stays taken until the session ends.
    """
    functions = session.functions
    queues: Heap[KubeBatchQueue] = Heap(functions.queue_less)
    jobs: dict[str, Heap[KubeBatchJob]] = {}
    for job in session.jobs.values():
        if job.queue in session.queues:
            queues.push(session.queues[job.queue])
            jobs.setdefault(job.queue, Heap(functions.job_less)).push(job)
    tasks: dict[str, list[KubeBatchTask]] = {}
    while queues:
        queue = queues.pop()
        if functions.overused(queue) or not jobs[queue.name]:
            continue
        job = jobs[queue.name].pop()
        if job.uid not in tasks:
            # Tasks with requests in init containers only are left out here and by backfill.
            pending = job.of(TaskStatus.PENDING).values()
            asking = [task for task in pending if not is_empty(task.ask.running)]
            tasks[job.uid] = _last_first(session, asking)
        if _allocate_job(session, job, tasks[job.uid]):
            jobs[queue.name].push(job)
        queues.push(queue)


def _allocate_job(session: KubeBatchSession, job: KubeBatchJob, tasks: list[KubeBatchTask]) -> bool:
    """One turn of a job; True if it is ready and may have another. It ends at the first task that
    fits nowhere."""
    while tasks:
        task = tasks.pop()
        job.short_by = {}
        if not _place(session, job, task):
            return False
        if session.functions.job_ready(job):
            return True
    return False


def _place(session: KubeBatchSession, job: KubeBatchJob, task: KubeBatchTask) -> bool:
    """Place a task on the best node, whether its resources are idle or still being released; False
    if there is none."""
    request = task.ask.launching
    fitting = [
        node
        for node in session.nodes.values()
        if less_equal(request, node.idle) or less_equal(request, node.releasing)
    ]
    best = session.best(task, session.passing(task, fitting))
    if best is None:
        return False
    if less_equal(request, best.idle):
        session.allocate(task, best)
        return True
    job.short_by[best.name] = shortage(best.idle, request)
    if less_equal(request, best.releasing):
        session.pipeline(task, best)
    return True


# backfill.


def backfill(session: KubeBatchSession) -> None:
    """Place tasks without requests on the first nodes that pass, in no order."""
    for job in list(session.jobs.values()):
        for task in list(job.of(TaskStatus.PENDING).values()):
            if is_empty(task.ask.launching):
                _backfill_task(session, task)


def _backfill_task(session: KubeBatchSession, task: KubeBatchTask) -> None:
    for node in session.nodes.values():
        if session.passing(task, [node]) and not session.allocate(task, node):
            return


# preempt and reclaim.


class _PendingTasks:
    """Jobs with pending tasks by queue, in job order, and their tasks that were not tried yet."""

    def __init__(self, session: KubeBatchSession) -> None:
        self._session = session
        self._tasks: dict[str, list[KubeBatchTask]] = {}
        self.waiting = [
            job
            for job in session.jobs.values()
            if job.of(TaskStatus.PENDING) and job.queue in session.queues
        ]
        self.jobs: dict[str, Heap[KubeBatchJob]] = {}
        for job in self.waiting:
            self.jobs.setdefault(job.queue, Heap(session.functions.job_less)).push(job)

    def tasks(self, job: KubeBatchJob) -> list[KubeBatchTask]:
        """The job's tasks that were not tried yet, the first one last."""
        if job.uid not in self._tasks:
            pending = job.of(TaskStatus.PENDING).values()
            self._tasks[job.uid] = _last_first(self._session, pending)
        return self._tasks[job.uid]


def _may_suffice(victims: list[KubeBatchTask], request: ResourceVector) -> bool:
    """True unless the victims together have less of every resource: that they suffice is not
    asked."""
    together = ResourceVector()
    for victim in victims:
        together.add(victim.ask.running)
    return bool(victims) and not less(together, request)


def _queues_with_jobs(session: KubeBatchSession) -> list[KubeBatchQueue]:
    names = dict.fromkeys(job.queue for job in session.jobs.values())
    return [session.queues[name] for name in names if name in session.queues]


def preempt(session: KubeBatchSession) -> None:
    """Preempt between the jobs of each queue; after each queue, within all jobs.

    Priorities of victims do not matter, and a task that found no victim in other jobs is not tried
    within its own.
    """
    pending = _PendingTasks(session)
    for queue in _queues_with_jobs(session):
        _preempt_between_jobs(session, pending, queue.name)
        for job in pending.waiting:
            tasks = pending.tasks(job)
            while tasks:
                statement = KubeBatchStatement(session)
                assigned = _preempt_for(
                    session, statement, tasks.pop(), lambda task, other: other.job == task.job
                )
                statement.commit()
                if not assigned:
                    break


def _preempt_between_jobs(session: KubeBatchSession, pending: _PendingTasks, queue: str) -> None:
    functions = session.functions

    def is_candidate(task: KubeBatchTask, other: KubeBatchTask) -> bool:
        job = session.jobs.get(other.job)
        return job is not None and job.queue == queue and other.job != task.job

    jobs = pending.jobs.get(queue)
    while jobs:
        job = jobs.pop()
        statement = KubeBatchStatement(session)
        assigned = False
        tasks = pending.tasks(job)
        while tasks:
            assigned |= _preempt_for(session, statement, tasks.pop(), is_candidate)
            if functions.job_pipelined(job):
                statement.commit()
                break
        if not functions.job_pipelined(job):
            statement.discard()
        elif assigned:
            jobs.push(job)


def _preempt_for(
    session: KubeBatchSession,
    statement: KubeBatchStatement,
    task: KubeBatchTask,
    is_candidate: Callable[[KubeBatchTask, KubeBatchTask], bool],
) -> bool:
    """Place a task on the resources of victims alone; True if it was placed.

    Idle resources do not count, and victims that did not suffice stay evicted.
    """
    request = task.ask.launching
    try:
        nodes = session.ranked(task)
    except AffinityError:
        return False
    for node in nodes:
        candidates = [other for other in running_on(node) if is_candidate(task, other)]
        victims = session.functions.victims("preemptable", task, candidates)
        if not _may_suffice(victims, request):
            continue
        freed = ResourceVector()
        for victim in _last_first(session, victims):
            statement.evict(victim, "preempt")
            freed.add(victim.ask.running)
            if less_equal(request, freed):
                statement.pipeline(task, node)
                return True
    return False


def reclaim(session: KubeBatchSession) -> None:
    """Serve queues that are not overused: one task per job of the session."""
    pending = _PendingTasks(session)
    queues = Heap(session.functions.queue_less, _queues_with_jobs(session))
    while queues:
        queue = queues.pop()
        jobs = pending.jobs.get(queue.name)
        if session.functions.overused(queue) or not jobs:
            continue
        tasks = pending.tasks(jobs.pop())
        if tasks and _reclaim_for(session, tasks.pop()):
            queues.push(queue)


def _reclaim_for(session: KubeBatchSession, task: KubeBatchTask) -> bool:
    """Evict at once on the first nodes that may suffice, and pipeline the task once it fits."""
    request, queue = task.ask.launching, session.jobs[task.job].queue
    for node in session.nodes.values():
        if not session.passing(task, [node]):
            continue
        candidates = [
            other
            for other in running_on(node)
            if other.job in session.jobs and session.jobs[other.job].queue != queue
        ]
        victims = session.functions.victims("reclaimable", task, candidates)
        if _may_suffice(victims, request) and _reclaim_on(session, task, node, victims):
            return True
    return False


def _reclaim_on(
    session: KubeBatchSession,
    task: KubeBatchTask,
    node: KubeBatchNode,
    victims: list[KubeBatchTask],
) -> bool:
    freed = ResourceVector()
    for victim in victims:
        if session.evict(victim, "reclaim"):
            continue
        freed.add(victim.ask.running)
        if less_equal(task.ask.launching, freed):
            break
    if less_equal(task.ask.launching, freed):
        session.pipeline(task, node)
        return True
    return False


ACTIONS: Mapping[str, Callable[[KubeBatchSession], None]] = {
    "allocate": allocate,
    "backfill": backfill,
    "preempt": preempt,
    "reclaim": reclaim,
}
"""Name -> action."""
