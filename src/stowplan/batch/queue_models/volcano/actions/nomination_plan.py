"""Nomination plan: where the tasks of a job would wait once some victims are evicted.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/utils/simulate.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stowplan.batch.queue_models.volcano.actions.hyper_node_allocation import gradients_for_sub_job
from stowplan.batch.queue_models.volcano.actions.task_allocation import TaskHeap
from stowplan.batch.queue_models.volcano.actions.volcano_backfill import ERROR_CACHE
from stowplan.batch.queue_models.volcano.actions.worksheets import JobWorksheet
from stowplan.batch.queue_models.volcano.hyper_nodes import HyperNode
from stowplan.batch.queue_models.volcano.session_nodes.predicate_failures import PredicateFailures
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import boolean
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob, VolcanoSubJob
from stowplan.batch.queue_models.volcano.volcano_statement import VolcanoOperation, VolcanoStatement
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask

NominationPlan = tuple[list[VolcanoOperation], dict[str, str]]
"""Changes, and sub-group -> HyperNode."""


def pending_tasks(session: VolcanoSession, job: VolcanoSessionJob) -> list[VolcanoTask]:
    """Tasks for which something is evicted: all, or of one sub-group if the job is placed."""
    sheet = JobWorksheet.of(session, job, with_admission=False)
    is_ready = session.is_ready(job)
    found = []
    while sheet.sub_jobs:
        tasks = sheet.tasks[sheet.sub_jobs.pop().uid]
        while tasks:
            found.append(tasks.pop())
        if is_ready:
            break
    return found


def plan_nominations(
    session: VolcanoSession,
    job: VolcanoSessionJob,
    within: HyperNode,
    victims: Iterable[VolcanoTask],
) -> NominationPlan | None:
    """The changes that have a job wait below a HyperNode; None if it would not be helped.

    Nothing is changed when this returns.
    """
    sheet = JobWorksheet.of(session, job, with_admission=False)
    was_ready = session.is_ready(job)
    chain = [VolcanoStatement(session)]
    for victim in victims:
        chain[0].evict(victim)
    chosen: dict[str, str] = {}
    is_helped = False
    while sheet.sub_jobs:
        sub_job = sheet.sub_jobs.pop()
        found = _place_somewhere(session, job, sub_job, sheet.tasks[sub_job.uid], within)
        if found is None:
            is_helped = False
            break
        chain.append(found[0])
        chosen[sub_job.uid] = found[1]
        is_helped = session.is_pipelined(job)
        if was_ready or is_helped:
            break
    operations = [one for statement in chain for one in statement.operations]
    for statement in reversed(chain):
        statement.discard()
    return (operations, chosen) if is_helped else None


def _place_somewhere(
    session: VolcanoSession,
    job: VolcanoSessionJob,
    sub_job: VolcanoSubJob,
    tasks: TaskHeap,
    within: HyperNode,
) -> tuple[VolcanoStatement, str] | None:
    """Have the tasks of a sub-group wait in the first HyperNode that takes them all."""
    gradients = [[within]]
    if job.has_hard_topology:
        gradients = gradients_for_sub_job(session, sub_job, within, evicts=True)
    for gradient in gradients:
        for hyper_node in gradient:
            statement = VolcanoStatement(session)
            if _place_in(session, statement, job, tasks.copy(), hyper_node.name) and (
                session.is_sub_job_ready(job, sub_job) or session.is_sub_job_pipelined(job, sub_job)
            ):
                return statement, hyper_node.name
            statement.discard()
    return None


def _place_in(
    session: VolcanoSession,
    statement: VolcanoStatement,
    job: VolcanoSessionJob,
    tasks: TaskHeap,
    hyper_node: str,
) -> bool:
    """Have tasks wait below a HyperNode; False if one does not fit."""
    nodes, queue = session.nodes_of(hyper_node), session.queues[job.queue]
    arguments = session.options.argument("allocate")
    failures = PredicateFailures(
        session.node_list, keeps=boolean(arguments, ERROR_CACHE, default=True)
    )
    if not nodes or not tasks:
        return False
    while tasks:
        task = tasks.pop()
        if not session.may_allocate(queue, task):
            return False
        known = {node.name for node in session.candidates_for(task)}
        asked = [node for node in nodes if node.name in known] if known else nodes
        if not asked or not session.prepare(task):
            return False
        passing = session.predicate_nodes(
            task, asked, failures, with_amounts=True, allows_eviction=True
        )
        node = _choose(session, task, passing)
        if node is None or not node.has_later(task.request):
            return False
        if not statement.pipeline(task, node, evicts=True):
            return False
    return True


def _choose(
    session: VolcanoSession, task: VolcanoTask, nodes: Sequence[VolcanoNode]
) -> VolcanoNode | None:
    """The best of the nodes with idle resources, or else of those that will have them."""
    idle = [node for node in nodes if task.request.fits(node.idle)]
    rest = [node for node in nodes if node not in idle]
    for group in (idle, rest):
        best = session.best_node(task, group) if group else None
        if best is not None:
            return best
    return None
