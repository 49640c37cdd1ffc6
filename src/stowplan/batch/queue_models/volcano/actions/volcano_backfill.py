"""backfill: place tasks that request nothing.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/backfill/backfill.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.session_nodes.predicate_failures import PredicateFailures
from stowplan.batch.queue_models.volcano.volcano_options import boolean
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus

ERROR_CACHE = "predicateErrorCacheEnable"
"""Argument of actions: whether nodes are remembered that did not pass for a role."""


def backfill(session: VolcanoSession) -> None:
    """Run the action."""
    keeps = boolean(session.options.argument("backfill"), ERROR_CACHE, default=True)
    for task in _tasks(session):
        job = session.jobs[task.job]
        if not session.prepare(task):
            job.infeasible[task.uid] = frozenset()
            continue
        failures = PredicateFailures(session.node_list, keeps=keeps)
        nodes = session.predicate_nodes(
            task, session.node_list, failures, with_amounts=False, allows_eviction=False
        )
        if not nodes:
            job.infeasible[task.uid] = failures.unresolvable()
            continue
        node = session.best_node(task, nodes)
        if node is None or not session.place(task, node, TaskStatus.ALLOCATED):
            job.infeasible[task.uid] = frozenset()
        elif session.is_ready(job):
            for placed in list(job.of(TaskStatus.ALLOCATED)):
                session.bind(placed)


def _tasks(session: VolcanoSession) -> list[VolcanoTask]:
    """Tasks that request nothing, in the order of queues, jobs and tasks."""
    queues: Heap[VolcanoQueue] = Heap(session.queue_before)
    jobs: dict[str, Heap[VolcanoSessionJob]] = {}
    tasks: dict[str, Heap[VolcanoTask]] = {}
    for job in session.jobs.values():
        if not job.n_best_effort and not job.of(TaskStatus.PIPELINED):
            continue
        if job.is_pending or not session.is_valid(job) or job.queue not in session.queues:
            continue
        found = [task for task in session.has_pending(job) if task.is_best_effort]
        for task in list(job.of(TaskStatus.PIPELINED)):
            if task.is_best_effort:
                session.displace(task)
                found.append(task)
        if not found:
            continue
        tasks[job.uid] = Heap(session.task_before, found)
        if job.queue not in jobs:
            queues.push(session.queues[job.queue])
            jobs[job.queue] = Heap(session.job_before)
        jobs[job.queue].push(job)
    ordered = []
    while queues:
        of_queue = jobs[queues.pop().name]
        while of_queue:
            of_job = tasks[of_queue.pop().uid]
            while of_job:
                ordered.append(of_job.pop())
    return ordered
