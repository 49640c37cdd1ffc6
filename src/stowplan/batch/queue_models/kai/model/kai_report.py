"""Jobs and queues of a session of KAI-Scheduler, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from stowplan.batch.job_report import JobReport
from stowplan.batch.queue_models.kai.fair_share import UNLIMITED
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.model.eviction_moments import eviction_moments
from stowplan.batch.queue_models.kai.model.kai_reasons import (
    GROUP_NOT_FOUND,
    RESOURCE_NAMES,
    SUB_GROUP_NOT_FOUND,
    KaiReasons,
    placed,
    plain_amount,
)
from stowplan.batch.queue_models.kai.state.kai_amount import CARDS
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_queue import KaiQueue
from stowplan.batch.queue_models.kai.state.kai_task import ALLOCATED_STATUSES, KaiStatus, KaiTask
from stowplan.batch.queue_models.queue_model import ModelQueue, ModelReport
from stowplan.objects.kai.kai_kinds import SUB_GROUP_LABEL
from stowplan.objects.pod import Pod


class OpenKaiSession(msgspec.Struct, frozen=True):
    """A session and what it was made of. own: job -> its name, for jobs whose group is made for
    pods that name none. orphans: group that does not exist -> its pods. refusals: by uid, why a
    pod that names no group has none. outside: job -> its pods that belong to none of its
    sub-groups."""

    session: KaiSession
    own: Mapping[str, str]
    orphans: Mapping[str, Sequence[Pod]]
    refusals: Mapping[str, str] = {}
    outside: Mapping[str, Sequence[KaiTask]] = {}


def report_of(opened: OpenKaiSession, reasons: KaiReasons, asked: str = "") -> ModelReport:
    """The report of a session. asked: uid of a pod whose nodes and evictions are reported."""
    session = opened.session
    jobs = [
        _job(opened, reasons, job)
        for job in session.jobs.values()
        if job.tasks() or job.uid in opened.outside
    ]
    jobs += _orphans(opened, reasons)
    idle = [0.0, 0.0, 0.0]
    for node in session.nodes.values():
        shares = session.index.shares(node.idle)
        idle = [a + b for a, b in zip(idle, shares, strict=True)]
    counts = _counts(opened)
    queues = [
        _queue(session, queue, *counts[name]) for name, queue in session.queues.queues.items()
    ]
    report = ModelReport(
        jobs,
        queues,
        _plain(session.queues.total),
        _plain(idle),
        left_out=session.queues.left_out,
    )
    found = next(
        ((job, t) for job in session.jobs.values() for t in job.tasks() if t.uid == asked), None
    )
    if found is None or found[1].status != KaiStatus.PENDING:
        return report
    job, task = found
    nodes = {name: reasons.of_node(task, node) for name, node in session.nodes.items()}
    if job.queue not in session.queues.queues:
        return replace(report, nodes=nodes)
    evictions, moments = reasons.evictions(job), tuple(eviction_moments(session, job))
    return replace(report, nodes=nodes, evictions=evictions, moments=moments)


def _job(opened: OpenKaiSession, reasons: KaiReasons, job: KaiJob) -> JobReport:
    session, (reason, message) = opened.session, reasons.of(job)
    own = opened.own.get(job.uid)
    tasks, outside = job.tasks(), opened.outside.get(job.uid, ())
    if outside:
        text = _outside_text(job, len(outside))
        reason, message = (reason, f"{message}; {text}") if reason else (SUB_GROUP_NOT_FOUND, text)
    return JobReport(
        uid=job.uid,
        name=job.uid if own is None else own,
        kind="PodGroup" if own is None else "Pods",
        queue=job.queue,
        priority=job.priority,
        min_member=reasons.minimum(job),
        pods=len(tasks) + len(outside),
        ready=len(placed(job)),
        placed={t.key: t.node for t in tasks if t.status == KaiStatus.BINDING},
        promised={t.key: t.node for t in tasks if t.status == KaiStatus.PIPELINED},
        waiting=(
            *(t.key for t in tasks if t.status in (KaiStatus.PENDING, KaiStatus.GATED)),
            *(task.key for task in outside if waits(task.pod)),
        ),
        reason=reason,
        message=message,
        uses=_some(session.index.shares(job.allocated)),
        wanted=_some(session.wanted(job)) if job.n_pending else {},
        is_preemptible=job.is_preemptible or job.queue not in session.queues.queues,
    )


def waits(pod: Pod) -> bool:
    """Whether a pod has no node, and has not ended."""
    return not pod.node_name and not pod.is_finished


def _outside_text(job: KaiJob, n_pods: int) -> str:
    count = f"{n_pods} {'pod belongs' if n_pods == 1 else 'pods belong'}"
    return f"{count} to none of its sub-groups ({', '.join(job.sets)}): label {SUB_GROUP_LABEL}"


def _some(amounts: Sequence[float]) -> dict[str, float]:
    return {name: amount for name, amount in _plain(amounts).items() if amount}


def _orphans(opened: OpenKaiSession, reasons: KaiReasons) -> Iterator[JobReport]:
    for key, pods in opened.orphans.items():
        yield JobReport(
            uid=key,
            name=key,
            kind="PodGroup",
            queue="",
            priority=0,
            min_member=0,
            pods=len(pods),
            ready=sum(bool(pod.node_name) for pod in pods),
            waiting=tuple(pod.key for pod in pods if not pod.node_name),
            reason=GROUP_NOT_FOUND,
            message=opened.refusals.get(pods[0].uid) or reasons.no_group(key),
        )


def _counts(opened: OpenKaiSession) -> dict[str, tuple[int, int]]:
    """Queue -> pods with a place and pods that wait, with those of all queues below it."""
    session = opened.session
    counts = dict.fromkeys(session.queues.queues, (0, 0))
    for job in session.jobs.values():
        tasks = job.tasks()
        n_placed = sum(bool(task.status & ALLOCATED_STATUSES) for task in tasks)
        n_pending = sum(task.status == KaiStatus.PENDING for task in tasks)
        n_pending += sum(waits(task.pod) for task in opened.outside.get(job.uid, ()))
        for queue in session.queues.up(job.queue):
            before = counts[queue.name]
            counts[queue.name] = (before[0] + n_placed, before[1] + n_pending)
    return counts


def _queue(session: KaiSession, queue: KaiQueue, n_placed: int, n_pending: int) -> ModelQueue:
    waiting = [max(0.0, a - b) for a, b in zip(queue.request, queue.allocated, strict=True)]
    return ModelQueue(
        name=queue.name,
        weight=int(queue.terms.weight[CARDS]),
        pods_placed=n_placed,
        pods_pending=n_pending,
        allocated=_plain(queue.allocated),
        pending=_plain(waiting),
        deserved=_plain(queue.fair),
        share=round(queue.dominant_share(session.queues.total, queue.allocated), 4),
        capability=_plain(queue.limit),
        guarantee=_plain(queue.quota),
        parent=queue.parent,
        owned=_plain(queue.quota),
        fixed=_plain(queue.fixed),
    )


def _plain(amounts: Sequence[float]) -> dict[str, float]:
    """Resource -> cores, bytes or cards; without resources of which there is no limit."""
    return {
        name: plain_amount(i, amounts[i])
        for i, name in enumerate(RESOURCE_NAMES)
        if amounts[i] != UNLIMITED
    }
