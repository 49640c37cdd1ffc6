"""Minimum run times of KAI-Scheduler: how long a job that was started may not be evicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stowplan.batch.queue_models.kai.actions.victim_scenario import JobVictims, VictimScenario
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_task import ACTIVE_STATUSES
from stowplan.batch.queue_models.kai.state.pod_sets import KaiPodSet

Protects = Callable[[KaiSession, KaiJob, KaiJob], bool]
"""Whether a session protects a victim from a job."""


def from_preemption(session: KaiSession, job: KaiJob, victim: KaiJob) -> bool:
    """Whether a job may not be evicted for one of its queue. job: makes no difference."""
    return _is_within(session, victim, preempt_runtime(session, victim))


def preempt_runtime(session: KaiSession, victim: KaiJob) -> float:
    """Seconds for which a job that was started may not be evicted for one of its queue."""
    for queue in session.queues.up(victim.queue):
        if queue.terms.preempt_min_runtime is not None:
            return queue.terms.preempt_min_runtime
    return session.options.preempt_min_runtime


def from_reclaim(session: KaiSession, job: KaiJob, victim: KaiJob) -> bool:
    """Whether a job may not be evicted for one of another queue."""
    return _is_within(session, victim, reclaim_runtime(session, job, victim))


def reclaim_runtime(session: KaiSession, job: KaiJob, victim: KaiJob) -> float:
    """Seconds for which a job that was started may not be evicted for one of another queue."""
    default = session.options.reclaim_min_runtime
    tree = session.queues
    theirs, mine = tree.path(victim.queue), tree.path(job.queue)
    if not theirs or not mine:
        return default
    first = len(theirs) - 1
    if not session.options.reclaim_by_leaf:
        common = sum(1 for a, b in zip(theirs, mine, strict=False) if a.name == b.name)
        # Top queues are siblings; what is above the victim's one is not asked.
        first = min(common, len(theirs) - 1)
    for queue in reversed(theirs[: first + 1]):
        if queue.terms.reclaim_min_runtime is not None:
            return queue.terms.reclaim_min_runtime
    return default


def _is_within(session: KaiSession, victim: KaiJob, runtime: float) -> bool:
    return victim.last_start is not None and session.now < victim.last_start + runtime


def filters_out(session: KaiSession, job: KaiJob, victim: KaiJob, protects: Protects) -> bool:
    """Whether a job is no candidate. Elastic ones are, as far as they have pods to spare."""
    if "minruntime" not in session.options.plugins or victim.is_elastic:
        return False
    return protects(session, job, victim)


def keeps_minimum(scenario: VictimScenario, protects: Protects) -> bool:
    """Whether elastic jobs that are protected keep the pods that they need."""
    session = scenario.session
    if "minruntime" not in session.options.plugins:
        return True
    has_enough = _has_enough_active if session.options.keeps_minimum else _has_enough_left
    return all(
        has_enough(victims)
        for victims in scenario.victims().values()
        if victims.job.is_elastic and protects(session, scenario.job, victims.job)
    )


def _has_enough_left(victims: JobVictims) -> bool:
    gone: dict[str, int] = {}
    for task in victims.tasks:
        gone[task.sub_group] = gone.get(task.sub_group, 0) + 1
    sets = victims.job.sets
    return all(sets[name].minimum <= sets[name].used - count for name, count in gone.items())


def _has_enough_active(victims: JobVictims) -> bool:
    """The same, where pods that are being released already do not count as left."""
    gone = {task.uid for task in victims.tasks}
    sets = victims.job.sets
    return all(
        sets[name].minimum <= sum(1 for uid in _active(sets[name]) if uid not in gone)
        for name in {task.sub_group for task in victims.tasks}
    )


def _active(pods: KaiPodSet) -> Iterator[str]:
    return (uid for uid, status in pods.statuses.items() if status & ACTIVE_STATUSES)
