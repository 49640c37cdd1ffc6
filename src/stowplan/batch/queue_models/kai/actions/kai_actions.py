"""The actions of KAI-Scheduler: allocate, consolidation, reclaim, preempt, stalegangeviction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from stowplan.batch.queue_models.kai.actions import min_runtime
from stowplan.batch.queue_models.kai.actions.eviction_notes import (
    commit,
    moved,
    preempted,
    reclaimed,
    stale,
)
from stowplan.batch.queue_models.kai.actions.job_placement import JobPlacement
from stowplan.batch.queue_models.kai.actions.movable_jobs import movable_jobs, victim_jobs
from stowplan.batch.queue_models.kai.actions.reclaim_rules import (
    ReclaimCheck,
    may_be_reclaimed,
    may_reclaim,
)
from stowplan.batch.queue_models.kai.actions.victim_scenario import VictimScenario
from stowplan.batch.queue_models.kai.actions.victim_search import KaiVictimSearch
from stowplan.batch.queue_models.kai.job_queue import (
    JobFilters,
    JobQueue,
    in_order,
    without_repeats,
)
from stowplan.batch.queue_models.kai.kai_session import EvictionNote, KaiSession
from stowplan.batch.queue_models.kai.kai_statement import KaiStatement
from stowplan.batch.queue_models.kai.state.kai_amount import Amount, is_within, mig_profile
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_task import (
    ACTIVE_STATUSES,
    ALLOCATED_STATUSES,
    KaiStatus,
)


def allocate(session: KaiSession) -> None:
    """Place pods on what is free, or let them wait for what is being released."""
    queue = JobQueue(session)
    leaves = in_order(session, session.waiting, JobFilters(ready=True, pending=True))
    depth = session.options.depths.get("allocate")
    leaves = {name: jobs[:depth] for name, jobs in leaves.items()}

    def may_start(job: KaiJob) -> bool:
        return bool(job.next_tasks(True)) and session.may_have_room(job)

    # What has no room now has none later on: places are only taken.
    queue.fill({name: without_repeats(session, jobs, may_start) for name, jobs in leaves.items()})
    nodes = [*session.nodes.values()]
    while queue:
        job = queue.pop()
        was_started = any(task.status & ALLOCATED_STATUSES for task in job.tasks())
        statement = KaiStatement(session)
        job.wanted(True, session.least_memory)
        if not JobPlacement(session, statement, is_simulated=False).place(job, nodes):
            statement.discard()
            continue
        waits = job.is_waiting_gang
        if waits:
            statement.wait_together(job)
        statement.commit()
        if not waits and not was_started:
            job.last_start = session.now
        if any(task.may_be_placed(True) for task in job.tasks()):
            queue.push(job)


class _FailedJobs:
    """The smallest job that failed, for each kind of constraints."""

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on
        self._smallest: dict[str, KaiJob] = {}

    def is_easier(self, job: KaiJob) -> bool:
        """Whether a job is easier to place than the one that failed."""
        failed = self._smallest.get(job.signature)
        if failed is None or not self._is_on:
            return True
        mine, theirs = job.sorted_requests(), failed.sorted_requests()
        if not mine or not theirs:
            return False
        if len(theirs) > len(mine):
            return True
        for i, request in enumerate(mine):
            if i >= len(theirs):
                return False
            if is_within(request, theirs[i]) and not is_within(theirs[i], request):
                return True
        return False

    def add(self, job: KaiJob) -> None:
        """A job failed."""
        known = self._smallest.get(job.signature)
        if known is None or _is_smaller(job.sorted_requests(), known.sorted_requests()):
            self._smallest[job.signature] = job


def _is_smaller(mine: Sequence[Amount], theirs: Sequence[Amount]) -> bool:
    if not mine or not theirs or len(mine) > len(theirs):
        return False
    return all(is_within(a, b) for a, b in zip(mine, theirs, strict=False))


def _failed_by_queue(session: KaiSession) -> dict[str, _FailedJobs]:
    return defaultdict(lambda: _FailedJobs(session.options.skips_alike))


def _waiting(session: KaiSession, action: str, preemptible: bool = False) -> JobQueue:
    """Jobs for which an action may evict. Differs: with a depth, the first jobs of each queue; KAI
    drops a leaf of its heap for each further job, which depends on the order of a map."""
    filters = JobFilters(ready=True, pending=True, preemptible=preemptible, may_evict=True)
    depth = session.options.depths.get(action)
    if depth is None:
        return JobQueue(session, session.waiting, filters)
    leaves = in_order(session, session.waiting, filters)
    return JobQueue(session, [job for jobs in leaves.values() for job in jobs[:depth]], filters)


def _exceeds_nodes(session: KaiSession, job: KaiJob) -> bool:
    return any(session.exceeds_every_node(task) for task in job.next_tasks(False))


def consolidate(session: KaiSession) -> None:
    """Move preemptible jobs so that another one fits, where no pod loses its place."""
    if session.options.max_moved == 0:
        return
    budget, failed = session.budget, _FailedJobs(session.options.skips_alike)
    queue = _waiting(session, "consolidation", preemptible=True)
    while queue:
        job = queue.pop()
        if not failed.is_easier(job) or _exceeds_nodes(session, job) or budget.leaves_out(job):
            continue
        statement = None
        budget.begin_search()
        if _has_cards_for(session, job):
            movable = movable_jobs(session, job)
            search = KaiVictimSearch(session, movable, _all_have_places, keeps_all=True)
            statement = search.solve(job)
        if statement is not None:
            commit(session, statement, job, "consolidation", moved)
        else:
            failed.add(job)
            budget.found_nothing(job)
        if budget.is_action_spent:
            return


def _has_cards_for(session: KaiSession, job: KaiJob) -> bool:
    cards, memory = 0.0, 0
    for node in session.nodes.values():
        if node.is_ready:
            for free, free_memory in (node.idle_cards(), node.releasing_cards()):
                cards += free
                memory += free_memory
    tasks = job.next_tasks(False)
    asked = sum(task.cards.quota for task in tasks)
    asked_memory = sum(
        task.cards.memory + sum(mig_profile(name)[1] * n for name, n in task.cards.mig.items())
        for task in tasks
    )
    return cards >= asked and memory >= asked_memory


def _all_have_places(scenario: VictimScenario) -> bool:
    return not any(
        task.status == KaiStatus.RELEASING
        for victims in scenario.victims().values()
        for task in victims.tasks
    )


def reclaim(session: KaiSession) -> None:
    """Take resources back from other queues."""
    # What reclaims for one job may let another one reclaim, but one has to begin.
    if not any(may_reclaim(session, job) for job in session.waiting if _is_in_leaf(session, job)):
        return
    budget = session.budget
    failed: dict[str, _FailedJobs] = _failed_by_queue(session)
    queue = _waiting(session, "reclaim")
    while queue:
        job = queue.pop()
        if not may_reclaim(session, job) or not failed[job.queue].is_easier(job):
            continue
        if _exceeds_nodes(session, job) or budget.leaves_out(job):
            continue
        budget.begin_search()
        check = ReclaimCheck(session)
        may_lose: dict[str, bool] = {}
        victims = [
            victim
            for victim in session.jobs.values()
            if victim.queue != job.queue
            and victim.is_preemptible
            and victim.active
            and may_be_reclaimed(session, job, victim.queue, may_lose)
            and not min_runtime.filters_out(session, job, victim, min_runtime.from_reclaim)
        ]

        def is_valid(scenario: VictimScenario, check: ReclaimCheck = check) -> bool:
            return check.is_valid(scenario) and min_runtime.keeps_minimum(
                scenario, min_runtime.from_reclaim
            )

        statement = KaiVictimSearch(session, victims, is_valid).solve(job)
        if statement is not None:
            text = reclaimed(session, job, check.queues)
            commit(session, statement, job, "reclaim", text)
        else:
            failed[job.queue].add(job)
            budget.found_nothing(job)
        if budget.is_action_spent:
            return


def _is_in_leaf(session: KaiSession, job: KaiJob) -> bool:
    queue = session.queues.queues.get(job.queue)
    return queue is not None and not queue.children


def preempt(session: KaiSession) -> None:
    """Evict jobs of lower priority of the same queue."""
    lowest: dict[str, int] = {}
    for job in session.jobs.values():
        if job.is_preemptible and job.active:
            lowest[job.queue] = min(job.priority, lowest.get(job.queue, job.priority))
    if not any(job.priority > lowest.get(job.queue, job.priority) for job in session.waiting):
        return
    budget = session.budget
    failed: dict[str, _FailedJobs] = _failed_by_queue(session)
    queue = _waiting(session, "preempt")
    while queue:
        job = queue.pop()
        if not failed[job.queue].is_easier(job) or _exceeds_nodes(session, job):
            continue
        if budget.leaves_out(job):
            continue
        statement = None
        budget.begin_search()
        if not session.is_over_capacity(job, job.next_tasks(False), with_limits=False):
            victims = victim_jobs(session, job, _is_preempted_by(session, job))
            statement = KaiVictimSearch(
                session,
                victims,
                lambda one: min_runtime.keeps_minimum(one, min_runtime.from_preemption),
            ).solve(job)
        if statement is not None:
            commit(session, statement, job, "preempt", preempted(job))
        else:
            failed[job.queue].add(job)
            budget.found_nothing(job)
        if budget.is_action_spent:
            return


def _is_preempted_by(session: KaiSession, job: KaiJob) -> Callable[[KaiJob], bool]:
    def is_victim(victim: KaiJob) -> bool:
        return (
            victim.queue == job.queue
            and victim.priority < job.priority
            and not min_runtime.filters_out(session, job, victim, min_runtime.from_preemption)
        )

    return is_victim


def evict_stale_gangs(session: KaiSession) -> None:
    """Evict all of jobs that ran below their minimum for longer than their grace period."""
    for job in session.jobs.values():
        if not job.is_stale:
            continue
        grace = session.options.grace if job.terms.grace is None else job.terms.grace
        since = session.now if job.terms.stale_since is None else job.terms.stale_since
        if grace < 0 or session.now - since < grace:
            continue
        gone = [task for task in job.tasks() if task.status & ACTIVE_STATUSES]
        for task in gone:
            note = EvictionNote("stalegangeviction", stale(job, task), len(gone))
            session.eviction_notes[task.key] = note
            session.evicts.append(task.key)
            job.update(task, KaiStatus.RELEASING)
            session.nodes[task.node].update(task)
            session.on_placed(task, -1)


ACTIONS: Mapping[str, Callable[[KaiSession], None]] = {
    "allocate": allocate,
    "consolidation": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "stalegangeviction": evict_stale_gangs,
}
"""Actions by name."""


def run_actions(session: KaiSession) -> None:
    """Run the configured actions in their order. Raises ValueError for an unknown one."""
    for name in session.options.actions:
        if name not in ACTIONS:
            known = ", ".join(ACTIONS)
            raise ValueError(f"actions: got {name!r}, expected one of {known}")
        session.budget.begin_action(name)
        ACTIONS[name](session)
