"""What reclaim and preempt would do for a job of Volcano, in words, and why they do not help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stowplan.batch.queue_models.volcano.actions.volcano_reclaim import suffices
from stowplan.batch.queue_models.volcano.plugins.shares.queue_attributes import QueuePlugin
from stowplan.batch.queue_models.volcano.reports.volcano_reasons import amount_text
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.framework.deciders.tasks import TaskStatus

_HOOKS = {"reclaim": "reclaimable", "preempt": "preemptable"}


def eviction_notes(
    session: VolcanoSession, job: VolcanoSessionJob, task: VolcanoTask
) -> Iterator[str]:
    """One note for each of the two actions that is configured."""
    if job.is_pending or not session.is_starving(job):
        return
    for action, hook in _HOOKS.items():
        if action in session.options.actions:
            yield f"{action}: {_note(session, job, task, action, hook)}"


def _note(
    session: VolcanoSession, job: VolcanoSessionJob, task: VolcanoTask, action: str, hook: str
) -> str:
    if task.never_preempts:
        return "its preemptionPolicy is Never"
    queue = session.queues[job.queue]
    reclaims = action == "reclaim"
    if reclaims and not session.hooks.everyone("preemptive", queue, [task]):
        return f"queue {queue.name} may not reclaim{_has_what_it_deserves(session, job)}"
    others = [one for node in session.node_list for one in node.tasks.values()]
    candidates = [one for one in others if _is_candidate(session, job, one, reclaims=reclaims)]
    where = "other queues" if reclaims else f"queue {queue.name}"
    if not candidates:
        kept = _protected(session, job, others) if reclaims else ""
        return f"no running pod of {where} may be evicted{kept}"
    n_chosen = 0
    for node in session.node_list:
        here = [one for one in candidates if one.node == node.name]
        victims = session.hooks.victims(hook, task, here) if here else []
        n_chosen += len(victims)
        if victims and suffices(task, node, victims):
            names = ", ".join(victim.key for victim in victims[:3])
            return f"{session.hooks.agreed_in} would give up {names} on node {node.name}"
    if n_chosen:
        return f"what may be evicted of {where} makes no node large enough"
    return f"plugins spare all {len(candidates)} running pods of {where}{_spared(session, hook)}"


def _is_candidate(
    session: VolcanoSession, job: VolcanoSessionJob, other: VolcanoTask, *, reclaims: bool
) -> bool:
    owner = session.jobs.get(other.job)
    if owner is None or other.status is not TaskStatus.RUNNING or not other.accepts_eviction:
        return False
    if not reclaims:
        return owner.queue == job.queue and owner is not job
    return owner.queue != job.queue and session.queues[owner.queue].is_reclaimable


def _protected(session: VolcanoSession, job: VolcanoSessionJob, others: list[VolcanoTask]) -> str:
    """Which other queues with running pods give nothing back."""
    owners = (session.jobs.get(one.job) for one in others if one.status is TaskStatus.RUNNING)
    queues = {one.queue for one in owners if one is not None and one.queue != job.queue}
    kept = sorted(name for name in queues if not session.queues[name].is_reclaimable)
    if not kept:
        return ""
    verb = "is" if len(kept) == 1 else "are"
    return f": {', '.join(kept)} {verb} not reclaimable"


def _has_what_it_deserves(session: VolcanoSession, job: VolcanoSessionJob) -> str:
    sharing = _sharing(session)
    if sharing is None or job.queue not in sharing.attributes:
        return ""
    attributes = sharing.attributes[job.queue]
    parts = [
        f"{name} {amount_text(name, attributes.allocated.get(name))} of "
        f"{amount_text(name, attributes.deserved.get(name))} deserved"
        for name in ("cpu", "memory", *(attributes.deserved.scalars or ()))
        if 0 < attributes.deserved.get(name) <= attributes.allocated.get(name)
    ]
    return f": it has {', '.join(parts)}" if parts else ""


def _spared(session: VolcanoSession, hook: str) -> str:
    """The plugins that are asked about victims, tier by tier."""
    tiers: Sequence[Sequence[object]] = session.hooks.tiers(hook)
    names = [", ".join(call.__self__.name for call in tier) for tier in tiers]  # type: ignore[attr-defined]
    return f" ({'; '.join(names)})" if names else ""


def _sharing(session: VolcanoSession) -> QueuePlugin | None:
    plugins = session.plugins.values()
    return next((one for one in plugins if isinstance(one, QueuePlugin)), None)
