"""preempt: evict tasks of the same queue, or of the same job, for starving jobs.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/preempt/preempt.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stowplan.batch.queue_models.volcano.actions.preemption_dry_run import find_dry_run_victims
from stowplan.batch.queue_models.volcano.actions.volcano_backfill import ERROR_CACHE
from stowplan.batch.queue_models.volcano.actions.volcano_reclaim import suffices
from stowplan.batch.queue_models.volcano.pod_rules import PASSES, UNRESOLVABLE
from stowplan.batch.queue_models.volcano.session_nodes.predicate_failures import PredicateFailures
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import boolean
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_statement import VolcanoStatement
from stowplan.batch.queue_models.volcano.volcano_task import EVICTABLE_STATUSES, VolcanoTask
from stowplan.framework.deciders.heap import Heap

DRY_RUN = "enableTopologyAwarePreemption"

Candidates = Callable[[VolcanoTask], bool]


def preempt(session: VolcanoSession) -> None:
    """Run the action."""
    _Preemption(session).run()


class _Preemption:
    """One run of the action."""

    def __init__(self, session: VolcanoSession) -> None:
        self._session = session
        arguments = session.options.argument("preempt")
        self._failures = PredicateFailures(
            session.node_list, keeps=boolean(arguments, ERROR_CACHE, default=True)
        )
        self._arguments = arguments
        self._jobs: dict[str, Heap[VolcanoSessionJob]] = {}
        self._starving: dict[str, list[VolcanoSessionJob]] = {}
        self._tasks: dict[str, Heap[VolcanoTask]] = {}

    def run(self) -> None:
        """Preempt between jobs, then within each, queue by queue."""
        session = self._session
        for job in session.jobs.values():
            if job.is_pending or not session.is_valid(job) or job.queue not in session.queues:
                continue
            if not session.is_starving(job) or job.has_topology:
                continue
            self._jobs.setdefault(job.queue, Heap(session.job_before)).push(job)
            self._starving.setdefault(job.queue, []).append(job)
            self._tasks[job.uid] = Heap(session.task_before, session.has_pending(job))
        queues: Heap[VolcanoQueue] = Heap(session.queue_before)
        for name in self._jobs:
            queues.push(session.queues[name])
        while queues:
            queue = queues.pop()
            jobs = self._jobs[queue.name]
            while jobs:
                self._between_jobs(jobs.pop())
            for job in self._starving[queue.name]:
                self._within_job(job)

    def _between_jobs(self, job: VolcanoSessionJob) -> None:
        session = self._session
        statement = VolcanoStatement(session)
        tasks = self._tasks[job.uid]
        while session.is_starving(job) and tasks:
            task = tasks.pop()

            def may_evict(other: VolcanoTask, task: VolcanoTask = task) -> bool:
                owner = session.jobs.get(other.job)
                return (
                    _may_evict(task, other)
                    and owner is not None
                    and owner.queue == job.queue
                    and task.job != other.job
                )

            self._preempt(statement, task, may_evict)
        if session.is_pipelined(job):
            statement.commit()
        else:
            statement.discard()

    def _within_job(self, job: VolcanoSessionJob) -> None:
        session = self._session
        tasks = Heap(session.task_before, session.has_pending(job))
        while tasks:
            task = tasks.pop()
            statement = VolcanoStatement(session)

            def may_evict(other: VolcanoTask, task: VolcanoTask = task) -> bool:
                return _may_evict(task, other) and task.job == other.job

            if not self._preempt(statement, task, may_evict):
                statement.discard()
                return
            statement.commit()

    def _preempt(
        self, statement: VolcanoStatement, task: VolcanoTask, may_evict: Candidates
    ) -> bool:
        """Have a task wait on a node where enough is evicted; False if there is none."""
        session = self._session
        if not self._is_eligible(task) or not session.prepare(task):
            return False
        nodes = session.predicate_nodes(
            task,
            session.candidates_for(task),
            self._failures,
            with_amounts=False,
            allows_eviction=True,
        )
        if boolean(self._arguments, DRY_RUN, default=False):
            found = find_dry_run_victims(session, task, nodes, may_evict, self._arguments)
            return found is not None and self._take(statement, task, *found)
        return self._preempt_by_score(statement, task, nodes, may_evict)

    def _is_eligible(self, task: VolcanoTask) -> bool:
        """False for a task that may not preempt, or for which that has been done already."""
        session = self._session
        if task.never_preempts:
            return False
        nominated = task.pod.status.nominated_node_name
        if not nominated:
            return True
        node = session.nodes.get(nominated)
        if node is None:
            return False
        code = int(session.codes(task, [node])[0])
        if code == PASSES:
            return False
        if code == UNRESOLVABLE:
            return True
        own = task.pod.priority
        return not any(
            other.pod.priority < own and _is_preempted(other) for other in node.tasks.values()
        )

    def _take(
        self,
        statement: VolcanoStatement,
        task: VolcanoTask,
        node: VolcanoNode,
        victims: list[VolcanoTask],
    ) -> bool:
        on_node = VolcanoStatement(self._session)
        for victim in victims:
            on_node.evict(victim)
        if not on_node.pipeline(task, node, evicts=bool(victims)):
            on_node.discard()
            return False
        statement.merge(on_node)
        return True

    def _preempt_by_score(
        self,
        statement: VolcanoStatement,
        task: VolcanoTask,
        nodes: Sequence[VolcanoNode],
        may_evict: Candidates,
    ) -> bool:
        """Try nodes in the order of their scores."""
        session = self._session
        queue = session.queues[session.jobs[task.job].queue]
        scores = session.scores(task, nodes)
        if scores is None:
            return False
        for index in sorted(range(len(nodes)), key=lambda i: -scores[i]):
            node = nodes[index]
            candidates = [other for other in node.tasks.values() if may_evict(other)]
            victims = session.hooks.victims("preemptable", task, candidates)
            if not suffices(task, node, victims):
                continue
            on_node = VolcanoStatement(session)
            heap = session.victim_heap(victims, task)
            fits = _fits(session, queue, task, node)
            while heap and not fits:
                on_node.evict(heap.pop())
                fits = _fits(session, queue, task, node)
            evicts = bool(on_node.operations)
            if fits and on_node.pipeline(task, node, evicts=evicts):
                statement.merge(on_node)
                return True
            on_node.discard()
        return False


def _fits(
    session: VolcanoSession, queue: VolcanoQueue, task: VolcanoTask, node: VolcanoNode
) -> bool:
    return (
        session.may_allocate(queue, task)
        and node.has_later(task.request)
        and int(session.codes(task, [node])[0]) == PASSES
    )


def _may_evict(task: VolcanoTask, other: VolcanoTask) -> bool:
    if other.status not in EVICTABLE_STATUSES or not other.accepts_eviction:
        return False
    return other.is_best_effort or not task.is_best_effort


def _is_preempted(task: VolcanoTask) -> bool:
    """True for a pod that a scheduler has evicted and that is still there."""
    pod = task.pod
    if pod.metadata.deletion_timestamp is None:
        return False
    condition = next((c for c in pod.status.conditions if c.type == "DisruptionTarget"), None)
    return (
        condition is not None
        and condition.status == "True"
        and condition.reason == "PreemptionByScheduler"
    )
