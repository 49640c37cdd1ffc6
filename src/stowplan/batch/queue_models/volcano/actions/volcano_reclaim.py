"""reclaim: evict tasks of other queues for starving jobs.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/reclaim/reclaim.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.actions.volcano_backfill import ERROR_CACHE
from stowplan.batch.queue_models.volcano.pod_rules import PASSES
from stowplan.batch.queue_models.volcano.session_nodes.predicate_failures import PredicateFailures
from stowplan.batch.queue_models.volcano.volcano_defects import USELESS_RECLAIM
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import boolean
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_statement import VolcanoStatement
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus


def reclaim(session: VolcanoSession) -> None:
    """Run the action."""
    queues: Heap[VolcanoQueue] = Heap(session.queue_before)
    seen: set[str] = set()
    starving: dict[str, Heap[VolcanoSessionJob]] = {}
    tasks: dict[str, Heap[VolcanoTask]] = {}
    for job in session.jobs.values():
        if job.is_pending or not session.is_valid(job) or job.queue not in session.queues:
            continue
        if job.queue not in seen:
            seen.add(job.queue)
            queues.push(session.queues[job.queue])
        if session.is_starving(job):
            starving.setdefault(job.queue, Heap(session.job_before)).push(job)
            tasks[job.uid] = Heap(session.task_before, session.has_pending(job))
    while queues:
        queue = queues.pop()
        if session.hooks.anyone("overused", queue):
            continue
        jobs = starving.get(queue.name)
        while jobs:
            job = jobs.pop()
            _reclaim_for_job(session, queue, job, tasks[job.uid])
            if jobs:
                queues.push(queue)


def _reclaim_for_job(
    session: VolcanoSession, queue: VolcanoQueue, job: VolcanoSessionJob, tasks: Heap[VolcanoTask]
) -> None:
    statement = VolcanoStatement(session)
    while session.is_starving(job) and tasks:
        task = tasks.pop()
        if task.never_preempts or not session.hooks.everyone("preemptive", queue, [task]):
            continue
        if session.prepare(task):
            _reclaim_for_task(session, statement, task, job)
    if session.is_pipelined(job):
        statement.commit()
    else:
        statement.discard()


def _reclaim_for_task(
    session: VolcanoSession, statement: VolcanoStatement, task: VolcanoTask, job: VolcanoSessionJob
) -> None:
    """Have a task wait on the first node where enough can be evicted."""
    keeps = boolean(session.options.argument("reclaim"), ERROR_CACHE, default=True)
    nodes = session.predicate_nodes(
        task,
        session.candidates_for(task),
        PredicateFailures(session.node_list, keeps=keeps),
        with_amounts=False,
        allows_eviction=True,
    )
    for node in nodes:
        candidates = [other for other in node.tasks.values() if _may_reclaim(session, job, other)]
        if not candidates:
            continue
        victims = session.hooks.victims("reclaimable", task, candidates)
        if not suffices(task, node, victims):
            continue
        on_node = VolcanoStatement(session)
        available = node.future_idle()
        heap = session.victim_heap(victims, task)
        fits = task.request.fits(available) and _passes(session, task, node)
        # n_short: after so many victims the amounts do not suffice.
        evicted, n_short = list[VolcanoTask](), 0
        while heap and not fits:
            victim = heap.pop()
            on_node.evict(victim)
            evicted.append(victim)
            available.add(victim.request)
            n_short += not task.request.fits(available)
            fits = task.request.fits(available) and _passes(session, task, node, evicts=True)
        if fits and len(evicted) > n_short + 1:
            on_node.discard()
            on_node = _as_few(session, task, node, evicted)
        evicts = bool(on_node.operations)
        if not fits or not on_node.pipeline(task, node, evicts=evicts):
            on_node.discard()
            if evicts and USELESS_RECLAIM in session.options.mends:
                session.prepare(task)
            continue
        statement.merge(on_node)
        return


def _passes(
    session: VolcanoSession, task: VolcanoTask, node: VolcanoNode, *, evicts: bool = False
) -> bool:
    """True if the predicates let a task onto a node with what is left on it. evicts: pods have been
    evicted since the predicates have last looked at all of them."""
    if USELESS_RECLAIM not in session.options.mends:
        return True
    passes = int(session.codes(task, [node])[0]) == PASSES
    if passes or not evicts or not session.prepare(task):
        return passes
    return int(session.codes(task, [node])[0]) == PASSES


def _as_few(
    session: VolcanoSession, task: VolcanoTask, node: VolcanoNode, victims: list[VolcanoTask]
) -> VolcanoStatement:
    """Evict those of some victims without which a task would not fit a node: more of them were
    chosen than amounts need, until the last one let the predicates pass."""
    kept = victims
    for victim in reversed(victims[:-1]):
        rest = [other for other in kept if other is not victim]
        trial = _evicting(session, rest)
        # Predicates look again at all pods, as more of them were gone before.
        if (
            task.request.fits(node.future_idle())
            and session.prepare(task)
            and int(session.codes(task, [node])[0]) == PASSES
        ):
            kept = rest
        trial.discard()
    found = _evicting(session, kept)
    session.prepare(task)
    return found


def _evicting(session: VolcanoSession, victims: list[VolcanoTask]) -> VolcanoStatement:
    statement = VolcanoStatement(session)
    for victim in victims:
        statement.evict(victim)
    return statement


def _may_reclaim(session: VolcanoSession, job: VolcanoSessionJob, other: VolcanoTask) -> bool:
    """True for a running task of another queue from which others may reclaim."""
    if other.status is not TaskStatus.RUNNING or not other.accepts_eviction:
        return False
    owner = session.jobs.get(other.job)
    if owner is None or owner.queue == job.queue:
        return False
    return session.queues[owner.queue].is_reclaimable


def suffices(task: VolcanoTask, node: VolcanoNode, victims: list[VolcanoTask]) -> bool:
    """True if a task fits a node once all victims are gone."""
    future = node.future_idle()
    for victim in victims:
        future.add(victim.request)
    return task.request.fits(future)
