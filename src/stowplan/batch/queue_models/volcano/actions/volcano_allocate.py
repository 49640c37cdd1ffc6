"""allocate: place tasks on what is idle, or have them wait for what is being released.

Jobs with a hard network topology or sub-groups are placed by `hyper_node_allocation`.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/allocate/allocate.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from stowplan.batch.queue_models.volcano.actions.hyper_node_allocation import HyperNodeAllocation
from stowplan.batch.queue_models.volcano.actions.task_allocation import TaskAllocation
from stowplan.batch.queue_models.volcano.actions.worksheets import JobWorksheet
from stowplan.batch.queue_models.volcano.volcano_defects import TAKEN_ROOM
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import INQUEUE_PHASE, VolcanoSessionJob
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus


def allocate(session: VolcanoSession) -> None:
    """Run the action."""
    queues: Heap[VolcanoQueue] = Heap(session.queue_before)
    due: dict[str, list[VolcanoSessionJob]] = {}
    worksheets: dict[str, JobWorksheet] = {}
    for job in session.jobs.values():
        if job.is_pending:
            if "enqueue" in session.options.actions:
                continue
            job.phase = INQUEUE_PHASE
        if not job.of(TaskStatus.PENDING):
            continue
        if not session.is_valid(job) or job.queue not in session.queues:
            continue
        worksheet = JobWorksheet.of(session, job)
        if worksheet.is_empty:
            continue
        if job.queue not in due:
            due[job.queue] = []
            queues.push(session.queues[job.queue])
        due[job.queue].append(job)
        worksheets[job.uid] = worksheet
    tasks = TaskAllocation(session)
    in_tree = HyperNodeAllocation(session, tasks)
    if TAKEN_ROOM in session.options.mends:
        for job in _nominated(session, worksheets):
            if not session.hooks.anyone("overused", session.queues[job.queue]):
                _allocate_for_job(session, job, worksheets[job.uid], tasks, in_tree)
    # Of the jobs of a queue only the one that was taken out changes from now on.
    jobs = {name: session.job_heap(of_queue) for name, of_queue in due.items()}
    while queues:
        queue = queues.pop()
        if session.hooks.anyone("overused", queue) or not jobs[queue.name]:
            continue
        job = jobs[queue.name].pop()
        if _allocate_for_job(session, job, worksheets[job.uid], tasks, in_tree):
            jobs[queue.name].push(job)
        queues.push(queue)


def _nominated(
    session: VolcanoSession, worksheets: Mapping[str, JobWorksheet]
) -> list[VolcanoSessionJob]:
    """Jobs for which something was evicted in an earlier session, in order."""
    found = [
        job
        for uid in worksheets
        for job in (session.jobs[uid],)
        if any(task.pod.status.nominated_node_name for task in job.of(TaskStatus.PENDING))
    ]
    heap = Heap(session.job_before, found)
    return [heap.pop() for _ in found]


def _allocate_for_job(
    session: VolcanoSession,
    job: VolcanoSessionJob,
    worksheet: JobWorksheet,
    tasks: TaskAllocation,
    in_tree: HyperNodeAllocation,
) -> bool:
    """Place tasks of a job; True if it is placed and has tasks left.

    What only waits for resources is neither committed nor undone: it keeps others off them for the
    rest of the session.
    """
    if job.has_hard_topology or job.has_sub_groups:
        statement = in_tree.allocate(job, worksheet)
        if statement is None or not session.is_ready(job):
            return False
        statement.commit()
        in_tree.keep_decision(job)
        return not worksheet.is_empty
    sub_job, left = job.sub_jobs.get(job.uid), worksheet.tasks.get(job.uid)
    if sub_job is None or left is None:
        return False
    statement = None
    if sub_job.nominated_hyper_node:
        statement = tasks.as_nominated(job, sub_job, left)
    if statement is None:
        statement = tasks.allocate(job, sub_job, left, session.tree.top.name)
    if statement is None or not session.is_ready(job):
        return False
    statement.commit()
    sub_job.nominated_hyper_node = ""
    return bool(left)
