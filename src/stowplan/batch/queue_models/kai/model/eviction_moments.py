"""From when on more may be evicted for a job of KAI-Scheduler: for people."""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.batch.queue_models.kai.actions import min_runtime
from stowplan.batch.queue_models.kai.actions.reclaim_rules import may_be_reclaimed, may_reclaim
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.queue_model import ModelMoment


def eviction_moments(session: KaiSession, job: KaiJob) -> list[ModelMoment]:
    """From when on more may be evicted for a job: its delay ends, or jobs that it may preempt or
    reclaim from have run for long enough."""
    found = []
    may_take = may_reclaim(session, job)
    known: dict[str, bool] = {}
    if job.is_delayed(session.now):
        found.append(ModelMoment(job.delay_end, "preemption delay"))
    if "minruntime" in session.options.plugins:
        for victim in session.jobs.values():
            if victim.uid == job.uid or not victim.is_preemptible or not victim.active:
                continue
            if victim.queue == job.queue or (
                may_take and may_be_reclaimed(session, job, victim.queue, known)
            ):
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
