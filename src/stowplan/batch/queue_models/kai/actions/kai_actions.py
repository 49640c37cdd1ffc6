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
    MayReclaim,
    ReclaimCheck,
    may_be_reclaimed,
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
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
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

    def is_left_out(job: KaiJob) -> bool:
        return not may_start(job)

    # What has no room now has none later on: places are only taken.
    queue.fill({name: without_repeats(session, jobs, may_start) for name, jobs in leaves.items()})
    nodes = [*session.nodes.values()]
    while queue:
        job = queue.pop(is_left_out)
        if start(session, job, nodes) and any(task.may_be_placed(True) for task in job.tasks()):
            queue.push(job)


def start(session: KaiSession, job: KaiJob, nodes: Sequence[KaiNode]) -> bool:
    """Place the next pods of a job, or let them wait for what is being released; whether that
    worked."""
    was_started = any(task.status & ALLOCATED_STATUSES for task in job.tasks())
    statement = KaiStatement(session)
    job.wanted(True, session.least_memory)
    if not JobPlacement(session, statement, is_simulated=False).place(job, nodes):
        statement.discard()
        return False
    waits = job.is_waiting_gang
    if waits:
        statement.wait_together(job)
    statement.commit()
    if not waits and not was_started:
        job.last_start = session.now
    return True


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
        if mine == theirs:
            return False
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
    last: Amount | None = None
    for task in job.next_tasks(False):
        # Pods of a job mostly share their request.
        if task.request is not last and session.exceeds_every_node(task):
            return True
        last = task.request
    return False


class _LeftOut:
    """Which waiting jobs an action leaves out, as things are: one that is no easier to place than
    one that failed, asks for more than any node has, or for which a search found nothing a short
    time ago. by_queue: jobs are compared with those of their queue."""

    def __init__(self, session: KaiSession, by_queue: bool) -> None:
        self._session = session
        self._by_queue = by_queue
        is_on = session.options.skips_alike
        self._failed: dict[str, _FailedJobs] = defaultdict(lambda: _FailedJobs(is_on))
        # What is left out for the first or the last of these stays so during the action.
        self._known: set[tuple[str, int, int]] = set()

    def __call__(self, job: KaiJob) -> bool:
        """Whether a job is left out."""
        key = job.queue, job.priority, job.kind
        if key in self._known:
            return True
        if not self._of(job).is_easier(job) or self._session.budget.leaves_out(job):
            self._known.add(key)
            return True
        return _exceeds_nodes(self._session, job)

    def add(self, job: KaiJob) -> None:
        """The search for a job has found nothing."""
        self._of(job).add(job)
        self._session.budget.found_nothing(job)

    def _of(self, job: KaiJob) -> _FailedJobs:
        return self._failed[job.queue if self._by_queue else ""]


def consolidate(session: KaiSession) -> None:
    """Move preemptible jobs so that another one fits, where no pod loses its place."""
    if session.options.max_moved == 0:
        return
    budget, left_out = session.budget, _LeftOut(session, by_queue=False)
    queue = _waiting(session, "consolidation", preemptible=True)
    while queue:
        job = queue.pop(left_out)
        if left_out(job):
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
            left_out.add(job)
        if budget.is_action_spent:
            return


def _has_cards_for(session: KaiSession, job: KaiJob) -> bool:
    tasks = job.next_tasks(False)
    asked = sum(task.cards.quota for task in tasks)
    asked_memory = sum(
        task.cards.memory + sum(mig_profile(name)[1] * n for name, n in task.cards.mig.items())
        for task in tasks
    )
    if not asked and not asked_memory and session.rows.has_cards_or_none:
        return True
    cards, memory = 0.0, 0
    for node in session.nodes.values():
        if node.is_ready:
            for free, free_memory in (node.idle_cards(), node.releasing_cards()):
                cards += free
                memory += free_memory
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
    may = MayReclaim(session)
    if not any(may(job) for job in session.waiting if _is_in_leaf(session, job)):
        return
    budget, left_out = session.budget, _LeftOut(session, by_queue=True)
    queue = _waiting(session, "reclaim")
    while queue:
        job = queue.pop(lambda one: left_out(one) or not may(one))
        if not may(job) or left_out(job):
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
            left_out.add(job)
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
    budget, left_out = session.budget, _LeftOut(session, by_queue=True)
    queue = _waiting(session, "preempt")
    while queue:
        job = queue.pop(left_out)
        if left_out(job):
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
            left_out.add(job)
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
            # Where the node is gone, KAI goes on with the next pod, too.
            if task.node in session.nodes:
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
