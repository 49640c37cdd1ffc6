"""When time alone lets a session of KAI-Scheduler decide more: minimum run times, preemption delays
and grace periods of stale gangs end.

KAI runs a session each second; here one runs where something has changed, and at these moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stowplan.batch.queue_models.kai.actions import min_runtime
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.queue_model import ModelMoment

EVICTING = frozenset({"consolidation", "reclaim", "preempt"})
"""Actions that take from jobs for others."""
MARGIN = 0.001
"""Seconds by which a session is later, for what times lose when they are written."""


def next_moment(session: KaiSession) -> float | None:
    """The first of these moments after a session, in Unix seconds; None if there is none."""
    moments = [*_grace_ends(session)]
    actions = EVICTING.intersection(session.options.actions)
    if actions and any(job.n_pending for job in session.waiting):
        moments += _delay_ends(session)
        moments += _runtime_ends(session)
    later = [moment for moment in moments if moment > session.now]
    return min(later) + MARGIN if later else None


def _grace_ends(session: KaiSession) -> Iterator[float]:
    """When stale gangs are evicted."""
    if "stalegangeviction" not in session.options.actions:
        return
    for job in session.jobs.values():
        if job.is_stale:
            grace = session.options.grace if job.terms.grace is None else job.terms.grace
            since = session.now if job.terms.stale_since is None else job.terms.stale_since
            if grace >= 0:
                yield since + grace


def _delay_ends(session: KaiSession) -> Iterator[float]:
    """When jobs that wait may evict."""
    for job in session.waiting:
        if job.n_pending and job.terms.preemption_delay:
            yield job.delay_end


def _runtime_ends(session: KaiSession) -> Iterator[float]:
    """When jobs may be evicted that have started a short time ago."""
    if "minruntime" not in session.options.plugins:
        return
    by_queue: dict[str, Sequence[float]] = {}
    for job in session.jobs.values():
        if job.last_start is None or not job.is_preemptible or not job.active:
            continue
        if job.queue not in by_queue:
            by_queue[job.queue] = [*runtimes_above(session, job.queue)]
        for runtime in by_queue[job.queue]:
            yield job.last_start + runtime


def eviction_moments(session: KaiSession, job: KaiJob) -> list[ModelMoment]:
    """From when on more may be evicted for a job: its delay ends, or jobs have run for long
    enough."""
    found = []
    if job.is_delayed(session.now):
        found.append(ModelMoment(job.delay_end, "preemption delay"))
    if "minruntime" in session.options.plugins:
        for victim in session.jobs.values():
            if victim.uid != job.uid and victim.is_preemptible and victim.active:
                found += _end_of_protection(session, job, victim)
    return sorted(found, key=lambda one: (one.at, one.victim))


def _end_of_protection(session: KaiSession, job: KaiJob, victim: KaiJob) -> Iterator[ModelMoment]:
    if victim.last_start is None or victim.queue not in session.queues.queues:
        return
    if victim.queue != job.queue:
        action, runtime = "reclaim", min_runtime.reclaim_runtime(session, job, victim)
    elif victim.priority < job.priority:
        action, runtime = "preempt", min_runtime.preempt_runtime(session, victim)
    else:
        return
    end = victim.last_start + runtime
    if action in session.options.actions and end > session.now:
        yield ModelMoment(end, "minimum runtime", victim.uid, action)


def runtimes_above(session: KaiSession, queue: str) -> Mapping[float, None]:
    """The minimum run times that may protect a queue's jobs, in seconds."""
    options = session.options
    found = [options.reclaim_min_runtime, options.preempt_min_runtime]
    for one in session.queues.up(queue):
        found += [one.terms.reclaim_min_runtime or 0.0, one.terms.preempt_min_runtime or 0.0]
    return dict.fromkeys(runtime for runtime in found if runtime > 0)
