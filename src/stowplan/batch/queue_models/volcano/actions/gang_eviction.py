"""gangpreempt and gangreclaim: evict bundles of tasks for a whole job.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/gangpreempt, gangreclaim, utils.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.actions.hyper_node_allocation import gradients_for_job
from stowplan.batch.queue_models.volcano.actions.nomination_plan import (
    NominationPlan,
    pending_tasks,
    plan_nominations,
)
from stowplan.batch.queue_models.volcano.actions.victim_bundles import (
    SAFE,
    WHOLE,
    VictimBundle,
    allowed_bundles,
    bundles_of,
    sorted_bundles,
)
from stowplan.batch.queue_models.volcano.hyper_nodes import HyperNode
from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount, total_of
from stowplan.batch.queue_models.volcano.volcano_defects import WHOLE_BUNDLE
from stowplan.batch.queue_models.volcano.volcano_options import boolean, integer
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_statement import VolcanoStatement
from stowplan.batch.queue_models.volcano.volcano_task import (
    EVICTABLE_STATUSES,
    PREEMPTABLE,
    VolcanoTask,
)
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus

DOMAINS_MAX = 8


def gang_preempt(session: VolcanoSession) -> None:
    """Evict bundles of jobs of lower priority in the same queue."""
    _GangEviction(session, "gangpreempt", reclaims=False).run()


def gang_reclaim(session: VolcanoSession) -> None:
    """Evict bundles of jobs of other queues."""
    _GangEviction(session, "gangreclaim", reclaims=True).run()


class _GangEviction:
    """One run of either action. reclaims: from other queues."""

    def __init__(self, session: VolcanoSession, name: str, *, reclaims: bool) -> None:
        self._session, self._reclaims = session, reclaims
        arguments = session.options.argument(name)
        stated = integer(arguments, "maxDomains", DOMAINS_MAX)
        self._domains_max = stated if stated > 0 else DOMAINS_MAX
        self._trims = WHOLE_BUNDLE in session.options.mends
        self._allows_whole = boolean(arguments, "allowWholeBundle", default=True)

    def run(self) -> None:
        """Help starving jobs, queue by queue."""
        session = self._session
        queues: Heap[VolcanoQueue] = Heap(session.queue_before)
        seen: set[str] = set()
        starving: dict[str, Heap[VolcanoSessionJob]] = {}
        for job in session.jobs.values():
            if job.is_pending or not session.is_valid(job) or job.queue not in session.queues:
                continue
            if job.queue not in seen:
                seen.add(job.queue)
                queues.push(session.queues[job.queue])
            if session.is_starving(job):
                starving.setdefault(job.queue, Heap(session.job_before)).push(job)
        while queues:
            queue = queues.pop()
            if self._reclaims and session.hooks.anyone("overused", queue):
                continue
            jobs = starving.get(queue.name)
            while jobs:
                self._help(queue, jobs.pop())

    def _help(self, queue: VolcanoQueue, job: VolcanoSessionJob) -> None:
        session = self._session
        statement = VolcanoStatement(session)
        chosen = self._find_domain(queue, job, statement)
        if not session.is_pipelined(job):
            statement.discard()
            return
        statement.commit()
        for uid, hyper_node in chosen.items():
            job.sub_jobs[uid].nominated_hyper_node = hyper_node

    def _find_domain(
        self, queue: VolcanoQueue, job: VolcanoSessionJob, statement: VolcanoStatement
    ) -> dict[str, str]:
        """Evict as few bundles as suffice in the first HyperNode where some do."""
        session = self._session
        pending = pending_tasks(session, job)
        if not pending:
            return {}
        if self._reclaims and not session.hooks.everyone("preemptive", queue, pending):
            return {}
        need = total_of(task.request for task in pending)
        for domain in self._domains(job):
            nodes = session.nodes_of(domain)
            available = total_of(n.idle.copy().add(n.releasing) for n in nodes)
            victims: list[VolcanoTask] = []
            for bundle in self._bundles(job, need, domain):
                before = list(victims)
                victims += bundle.tasks
                available.add(bundle.frees)
                if not need.fits(available):
                    continue
                within = session.tree[domain]
                plan = plan_nominations(session, job, within, victims)
                if plan is not None and bundle.kind == SAFE and self._trims:
                    plan = self._trimmed(job, within, before, bundle.tasks) or plan
                if plan is not None and statement.repeat(plan[0]):
                    return plan[1]
        return {}

    def _trimmed(
        self,
        job: VolcanoSessionJob,
        within: HyperNode,
        before: list[VolcanoTask],
        spare: list[VolcanoTask],
    ) -> NominationPlan | None:
        """The plan with as few as possible of the spare tasks of the last bundle, all of which
        suffice; None if only all do."""
        session = self._session
        low, high = 0, len(spare)
        while low < high:
            middle = (low + high) // 2
            plan = plan_nominations(session, job, within, [*before, *spare[:middle]])
            low, high = (middle + 1, high) if plan is None else (low, middle)
        kept = spare[:low]
        found = plan_nominations(session, job, within, [*before, *kept])
        if found is None:
            return None
        # Tasks on other nodes than the last one may not be needed either.
        for task in kept[:-1]:
            rest = [other for other in kept if other is not task]
            plan = plan_nominations(session, job, within, [*before, *rest])
            if plan is not None:
                kept, found = rest, plan
        return found

    def _domains(self, job: VolcanoSessionJob) -> list[str]:
        session = self._session
        top = session.tree.top
        found: dict[str, None] = {}
        for gradient in gradients_for_job(session, job, top, evicts=True):
            for hyper_node in gradient:
                if len(found) < self._domains_max:
                    found[hyper_node.name] = None
        if not found and not job.has_hard_topology:
            found[top.name] = None
        return list(found)

    def _bundles(
        self, job: VolcanoSessionJob, need: VolcanoAmount, domain: str
    ) -> list[VictimBundle]:
        """Bundles below a HyperNode that may be evicted, the first to evict first."""
        session = self._session
        candidates: dict[str, list[VolcanoTask]] = {}
        for node in session.nodes_of(domain):
            for task in node.tasks.values():
                if self._may_evict(job, task):
                    candidates.setdefault(task.job, []).append(task)
        bundles = [
            bundle
            for uid, tasks in candidates.items()
            for bundle in bundles_of(session.jobs[uid], tasks)
        ]
        if not bundles:
            return []
        ordered = self._sorted(job, bundles, need)
        tasks = [task for bundle in ordered for task in bundle.tasks]
        victims = session.hooks.victims("evictable", job, tasks, self._reclaims)
        allowed = allowed_bundles(ordered, {task.uid for task in victims})
        ordered = self._sorted(job, allowed, need)
        return [one for one in ordered if one.kind != WHOLE or self._allows_whole]

    def _sorted(
        self, job: VolcanoSessionJob, bundles: list[VictimBundle], need: VolcanoAmount
    ) -> list[VictimBundle]:
        session = self._session
        queues = session.queues

        def by_queue(left: VolcanoSessionJob, right: VolcanoSessionJob) -> bool:
            if left.queue == right.queue:
                return False
            return session.victim_queue_before(
                queues[left.queue], queues[right.queue], queues[job.queue]
            )

        def by_job(left: VolcanoSessionJob, right: VolcanoSessionJob) -> bool:
            return left.uid != right.uid and not session.job_before(left, right)

        return sorted_bundles(bundles, need, by_queue if self._reclaims else by_job)

    def _may_evict(self, job: VolcanoSessionJob, task: VolcanoTask) -> bool:
        session = self._session
        owner = session.jobs.get(task.job)
        if owner is None or not task.accepts_eviction or not _allows_eviction(owner):
            return False
        if self._reclaims:
            is_running = task.status is TaskStatus.RUNNING
            is_reclaimable = session.queues[owner.queue].is_reclaimable
            return is_running and owner.queue != job.queue and is_reclaimable
        return (
            task.status in EVICTABLE_STATUSES
            and owner.queue == job.queue
            and owner.uid != job.uid
            and job.priority > owner.priority
        )


def _allows_eviction(job: VolcanoSessionJob) -> bool:
    """False for a group that says that it is not preemptable."""
    meta = job.group.metadata
    is_stated = PREEMPTABLE in meta.annotations or PREEMPTABLE in meta.labels
    return job.accepts_eviction or not is_stated
