"""When time alone lets a session decide more: KAI runs one each second, here changes start them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.model.kai_memory import KaiMemory
from stowplan.batch.queue_models.kai.state.kai_usage import KaiUsage, UsageOutlook

N_EACH = 8
"""So many moments at which usage is read are looked at one by one."""
STRIDE = 1.25
"""Factor by which those after them are further away."""
MONTHS = 62 * 86_400.0
"""Seconds for which usage is looked at where its windows begin by a cron expression."""


def next_session_in(
    session: KaiSession,
    memory: KaiMemory,
    others: Iterable[float],
    usage: KaiUsage | None = None,
) -> float | None:
    """Seconds until something ends that keeps a session from deciding; None for nothing.

    These are grace periods of stale gangs, delays before a job may evict, minimum runtimes while
    jobs wait, and the time at which usage changes fair shares while jobs wait. others: further
    moments: when a pod that terminates counts as stuck, and when a group is no longer waited for.
    usage: of queues over time; None where it does not count.
    """
    moments = [*_moments(session, memory), *others]
    is_waiting = any(job.n_pending for job in session.waiting)
    if usage is not None and session.options.k > 0 and is_waiting:
        moments += filter(None, (_other_shares_at(session, usage.outlook()),))
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


def _other_shares_at(session: KaiSession, outlook: UsageOutlook) -> float | None:
    """When fair shares will differ if queues keep what they have, in steps of the interval at which
    usage is read; None for not within the time that counts."""
    options, queues = session.options, session.queues
    rules, period = outlook.rules, options.usage_interval

    def differ(n_steps: int) -> bool:
        usage = outlook.shares(session.now + n_steps * period)
        return queues.fair_shares(options.k, usage) != now

    now = queues.fair_shares(options.k, outlook.shares(session.now))
    span = MONTHS if rules.resets is not None else 2 * rules.window
    same = 0
    for step in _steps(math.ceil(span / period)):
        if differ(step):
            break
        same = step
    else:
        return None
    while step - same > 1:
        middle = (same + step) // 2
        if differ(middle):
            step = middle
        else:
            same = middle
    return session.now + step * period


def _steps(last: int) -> Iterator[int]:
    """1, 2, 3 and so on, from N_EACH on growing by STRIDE, up to the last one."""
    step = 1
    while step < last:
        yield step
        step = step + 1 if step < N_EACH else math.ceil(step * STRIDE)
    yield last
