"""Why pods are evicted, in KAI-Scheduler's words: for which job, and by which action.

Source: KAI-Scheduler, pkg/scheduler/api/unschedule_info.go, pkg/scheduler/actions/utils/action.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stowplan.batch.queue_models.kai.fair_share import UNLIMITED
from stowplan.batch.queue_models.kai.kai_session import EvictionNote, KaiSession
from stowplan.batch.queue_models.kai.kai_statement import KaiStatement
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_queue import KaiQueue
from stowplan.batch.queue_models.kai.state.kai_task import DEFAULT_SUB_GROUP, KaiTask

CORES, GIGABYTES, CARDS = 1e3, 1e9, 1.0
DIGITS = 3


def commit(
    session: KaiSession,
    statement: KaiStatement,
    job: KaiJob,
    action: str,
    text: Callable[[KaiTask], str],
) -> None:
    """Make changes final, and note why pods are evicted. job: the one that gets their resources."""
    size = statement.n_victims
    for task in statement.commit():
        session.eviction_notes[task.key] = EvictionNote(action, text(task), size, job.uid)


def preempted(job: KaiJob) -> Callable[[KaiTask], str]:
    """The text for victims of a job of higher priority."""
    return lambda task: f"Pod {task.key} was preempted by higher priority workload {job.uid}"


def moved(task: KaiTask) -> str:
    """The text for a pod that consolidation moves."""
    return (
        f"Pod {task.key} was preempted and rescheduled due to bin packing (resource consolidation) "
        "procedure"
    )


def reclaimed(
    session: KaiSession, job: KaiJob, queues: Mapping[str, KaiQueue]
) -> Callable[[KaiTask], str]:
    """The text for victims of other queues. queues: as they were before anything was evicted."""

    def text(task: KaiTask) -> str:
        lines = [f"Pod {task.key} was preempted by workload {job.uid}."]
        mine, other = queues[job.queue], queues[session.jobs[task.job].queue]
        if mine.parent != other.parent:
            mine, other = (queues.get(one.parent, one) for one in (mine, other))
        return "\n".join([*lines, _figures(other), _figures(mine)])

    return text


def stale(job: KaiJob, task: KaiTask) -> str:
    """The text for a pod of a gang that has run below its minimum for too long."""
    pods = job.sets[task.sub_group]
    where = "" if [*job.sets] == [DEFAULT_SUB_GROUP] else f" in sub-group {pods.name}"
    return (
        f"Workload doesn't meet the minimum required number of pods ({pods.minimum}){where}, "
        f"evicting remaining pod: {task.key}"
    )


def _figures(queue: KaiQueue) -> str:
    return (
        f"{queue.name} uses <{_amounts(queue.allocated)}> with a quota of "
        f"<{_amounts(queue.quota)}>, fair-share of <{_amounts(queue.fair)}> and queue priority of "
        f"<{queue.terms.priority}>."
    )


def _amounts(shares: Sequence[float]) -> str:
    cpu, memory, cards = shares
    return (
        f"GPU: {_number(cards, CARDS)}, CPU: {_number(cpu, CORES)} (cores), "
        f"memory: {_number(memory, GIGABYTES)} (GB)"
    )


def _number(amount: float, unit: float) -> str:
    """An amount with up to three digits, cut off."""
    if amount == UNLIMITED:
        return "Unlimited"
    whole, _, digits = f"{amount / unit:.6f}".partition(".")
    digits = digits[:DIGITS].rstrip("0")
    return f"{whole}.{digits}" if digits else whole
