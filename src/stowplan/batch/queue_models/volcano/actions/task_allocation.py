"""TaskAllocation: places the tasks of one sub-group on the nodes of one HyperNode.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/allocate/allocate.go.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.actions.volcano_backfill import ERROR_CACHE
from stowplan.batch.queue_models.volcano.session_nodes.predicate_failures import PredicateFailures
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import boolean
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob, VolcanoSubJob
from stowplan.batch.queue_models.volcano.volcano_statement import VolcanoStatement
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.framework.deciders.heap import Heap

TaskHeap = Heap[VolcanoTask]


class TaskAllocation:
    """Places tasks until the job, or the sub-group, is ready."""

    def __init__(self, session: VolcanoSession) -> None:
        self._session = session
        arguments = session.options.argument("allocate")
        self._keeps = boolean(arguments, ERROR_CACHE, default=True)

    def allocate(
        self, job: VolcanoSessionJob, sub_job: VolcanoSubJob, tasks: TaskHeap, hyper_node: str
    ) -> VolcanoStatement | None:
        """Place tasks; None if too few could be placed or wait, and nothing changed."""
        session = self._session
        nodes = session.nodes_of(hyper_node)
        if not nodes:
            return None
        statement = VolcanoStatement(session)
        failures = PredicateFailures(session.node_list, keeps=self._keeps)
        near = sub_job.allocated_hyper_node
        while tasks:
            task = tasks.pop()
            if not self._is_due(job, sub_job, task):
                continue
            node = self._at_once(task, nodes, failures, tasks)
            if node is None:
                passing = self._passing(job, task, nodes, failures)
                if not passing:
                    if job.may_continue(sub_job.uid):
                        continue
                    break
                if sub_job.topology is not None:
                    task.near = near
                node = self._choose(task, passing)
            elif sub_job.topology is not None:
                task.near = near
            if node is None or not self.place(statement, task, node):
                continue
            if sub_job.topology is not None:
                near = self._nearer(node, near)
            if session.is_sub_job_ready(job, sub_job):
                break
        if session.is_sub_job_ready(job, sub_job) or session.is_sub_job_pipelined(job, sub_job):
            return statement
        statement.discard()
        return None

    def _at_once(
        self,
        task: VolcanoTask,
        nodes: Sequence[VolcanoNode],
        failures: PredicateFailures,
        others: TaskHeap,
    ) -> VolcanoNode | None:
        """The best node with idle resources by the column of the task's kind; None where the nodes
        must be asked.

        Of tasks of a role the first one is asked about in any case, which records the nodes that do
        not pass: no node that has passed can be recorded later that suits a task like it.
        """
        session = self._session
        if nodes is not session.node_list or task.pod.status.nominated_node_name:
            return None
        if not failures.would_not_change(task, others):
            return None
        if not session.with_room(task, nodes, later=False).any() or not session.prepare(task):
            return None
        column = session.kind_columns.of(task)
        place = -1 if column is None else column.best()
        return None if place < 0 else session.node_list[place]

    def _is_due(self, job: VolcanoSessionJob, sub_job: VolcanoSubJob, task: VolcanoTask) -> bool:
        """False for a task that is not tried."""
        if not self._session.may_allocate(self._session.queues[job.queue], task):
            return False
        if task.is_gated:
            return False
        if job.has_failed(sub_job.uid, task):
            job.infeasible[task.uid] = frozenset()
            return False
        return True

    def _passing(
        self,
        job: VolcanoSessionJob,
        task: VolcanoTask,
        nodes: Sequence[VolcanoNode],
        failures: PredicateFailures,
    ) -> Sequence[VolcanoNode]:
        """Nodes that suit a task; the one it is nominated to comes before all others."""
        session = self._session
        nominated = task.pod.status.nominated_node_name
        # Where no node has room, no filter can change that.
        needs_filters = (
            bool(nominated)
            or failures.of(task) is not None
            or bool(session.with_room(task, nodes, later=True).any())
        )
        if needs_filters and not session.prepare(task):
            job.infeasible[task.uid] = frozenset()
            return ()
        passing: Sequence[VolcanoNode] = ()
        for node in nodes if nominated else ():
            if node.name == nominated and node.has_later(task.request):
                passing = self._suitable(task, [node], failures)
        if not passing:
            passing = self._suitable(task, nodes, failures)
        if not passing:
            job.infeasible[task.uid] = failures.unresolvable()
        return passing

    def _suitable(
        self, task: VolcanoTask, nodes: Sequence[VolcanoNode], failures: PredicateFailures
    ) -> Sequence[VolcanoNode]:
        return self._session.predicate_nodes(
            task, nodes, failures, with_amounts=True, allows_eviction=False
        )

    def _choose(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> VolcanoNode | None:
        """The best node with idle resources, or else of those that will have them."""
        session = self._session
        is_idle = session.with_room(task, nodes, later=False)
        idle = nodes if is_idle.all() else session.pick(nodes, np.flatnonzero(is_idle))
        best = session.best_node(task, idle) if idle else None
        if best is not None:
            return best
        will_be = session.with_room(task, nodes, later=True) & ~is_idle
        rest = session.pick(nodes, np.flatnonzero(will_be))
        return session.best_node(task, rest) if rest else None

    def place(self, statement: VolcanoStatement, task: VolcanoTask, node: VolcanoNode) -> bool:
        """Allocate or pipeline a task; True unless that was refused."""
        if task.request.fits(node.idle):
            return statement.allocate(task, node)
        return not node.has_later(task.request) or statement.pipeline(task, node)

    def _nearer(self, node: VolcanoNode, near: str) -> str:
        """The HyperNode above a node and what the sub-group uses so far."""
        leaf = self._session.tree.leaf_of(node.name)
        return self._session.tree.common_ancestor(leaf, near) if leaf else near

    def as_nominated(
        self, job: VolcanoSessionJob, sub_job: VolcanoSubJob, tasks: TaskHeap
    ) -> VolcanoStatement | None:
        """Place every task on the node that it is nominated to; None if one does not fit there.

        The nomination of the sub-group is used up then.
        """
        session = self._session
        pinned = sub_job.nominated_hyper_node
        plan = self._nomination(job, tasks, pinned)
        statement = VolcanoStatement(session)
        for task, node in plan or ():
            if sub_job.topology is not None:
                task.near = pinned
            if not self.place(statement, task, node):
                statement.discard()
                plan = None
                break
        if plan is None:
            sub_job.nominated_hyper_node = ""
            return None
        while tasks:
            tasks.pop()
        tree = session.tree
        sub_job.allocated_hyper_node = tree.common_ancestor(sub_job.allocated_hyper_node, pinned)
        return statement

    def _nomination(
        self, job: VolcanoSessionJob, tasks: TaskHeap, pinned: str
    ) -> list[tuple[VolcanoTask, VolcanoNode]] | None:
        session = self._session
        names = {node.name for node in session.nodes_of(pinned)}
        failures = PredicateFailures(session.node_list, keeps=self._keeps)
        preview, plan = tasks.copy(), []
        while preview and names:
            task = preview.pop()
            nominated = task.pod.status.nominated_node_name
            if nominated not in names or not session.may_allocate(session.queues[job.queue], task):
                return None
            node = session.nodes[nominated]
            if not session.prepare(task) or not self._suitable(task, [node], failures):
                return None
            plan.append((task, node))
        return plan if names else None
