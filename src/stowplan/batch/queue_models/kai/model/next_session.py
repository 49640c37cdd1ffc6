"""When time alone lets a session decide more: KAI runs one each second, here changes start them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.model.kai_memory import KaiMemory


def next_session_in(
    session: KaiSession, memory: KaiMemory, others: Iterable[float]
) -> float | None:
    """Seconds until something ends that keeps a session from deciding; None for nothing.

    These are grace periods of stale gangs, delays before a job may evict, and minimum runtimes
    while jobs wait. others: further moments: when a pod that terminates counts as stuck, and when a
    group is no longer waited for. Differs: shares by usage over time change all
    the time, and are looked at with the next change.
    """
    moments = (*_moments(session, memory), *others)
    first = min((moment for moment in moments if moment > session.now), default=None)
    # A millisecond more: times are rounded to microseconds where they are written.
    return None if first is None else math.ceil((first - session.now) * 1e3 + 1) / 1e3


def _moments(session: KaiSession, memory: KaiMemory) -> Iterator[float]:
    for key, since in memory.stale.items():
        job = session.jobs.get(key)
        if job is not None:
            grace = session.options.grace if job.terms.grace is None else job.terms.grace
            yield since + max(grace, 0.0)
    waiting = [job for job in session.waiting if job.n_pending]
    for job in waiting:
        if job.terms.preemption_delay:
            begins = max(job.terms.created, job.last_eviction or job.terms.created)
            yield begins + job.terms.preemption_delay
    for runtime in _runtimes(session) if waiting else ():
        yield from (started + runtime for started in memory.started.values())


def _runtimes(session: KaiSession) -> set[float]:
    """All minimum runtimes that are above 0."""
    if "minruntime" not in session.options.plugins:
        return set()
    found = {session.options.reclaim_min_runtime, session.options.preempt_min_runtime}
    for queue in session.queues.queues.values():
        for runtime in (queue.terms.reclaim_min_runtime, queue.terms.preempt_min_runtime):
            found.add(runtime or 0.0)
    return {runtime for runtime in found if runtime > 0}
