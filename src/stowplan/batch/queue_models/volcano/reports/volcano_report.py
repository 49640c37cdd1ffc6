"""Jobs and queues of a session of Volcano, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from stowplan.batch.job_report import JobReport
from stowplan.batch.queue_models.queue_model import ModelQueue, ModelReport
from stowplan.batch.queue_models.volcano.model.volcano_close import POD_GROUP_NOT_FOUND
from stowplan.batch.queue_models.volcano.model.volcano_phases import phase_after
from stowplan.batch.queue_models.volcano.model.volcano_state import VolcanoState
from stowplan.batch.queue_models.volcano.plugins.shares.queue_attributes import (
    QueueAttributes,
    QueuePlugin,
)
from stowplan.batch.queue_models.volcano.plugins.shares.volcano_capacity import RECLAIM_ACTIONS
from stowplan.batch.queue_models.volcano.reports.volcano_evictions import eviction_notes
from stowplan.batch.queue_models.volcano.reports.volcano_reasons import JobReasons, node_reasons
from stowplan.batch.queue_models.volcano.volcano_amount import PODS, UNLIMITED, VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_queue import ROOT, VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import ALLOCATED_STATUSES
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.quantity import Quantity


def report_of(session: VolcanoSession, state: VolcanoState, asked: str = "") -> ModelReport:
    """The report of a session, before what it did not decide is undone. asked: uid of a pod whose
    nodes and evictions are reported."""
    reasons = JobReasons(session)
    jobs = [
        _job(session, state, job, reasons)
        for job in state.jobs.values()
        if job.tasks or job.is_pending
    ]
    jobs += _orphans(state)
    idle = VolcanoAmount()
    for node in session.node_list:
        idle.add(node.idle)
    report = ModelReport(jobs, list(_queues(session)), plain(session.total), plain(idle))
    task = state.tasks.get(asked)
    if task is None or task.status is not TaskStatus.PENDING or task.job not in session.jobs:
        return report
    evictions = tuple(eviction_notes(session, session.jobs[task.job], task))
    return replace(report, nodes=node_reasons(session, task), evictions=evictions)


def _job(
    session: VolcanoSession, state: VolcanoState, job: VolcanoSessionJob, reasons: JobReasons
) -> JobReport:
    reason = reasons.of(job)
    promised = {
        task.key: task.node
        for status in (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)
        for task in job.of(status)
    }
    is_solo = job.uid in state.solo
    return JobReport(
        uid=job.uid,
        name=_solo_name(job) if is_solo else job.uid,
        kind="Pods" if is_solo else "PodGroup",
        queue=job.queue,
        priority=job.priority,
        min_member=job.min_available,
        pods=len(job.tasks),
        ready=job.n_ready - len(job.of(TaskStatus.ALLOCATED)),
        phase=phase_after(job, has_gang="gang" in session.plugins),
        placed={
            task.key: task.node
            for task in job.of(TaskStatus.BINDING)
            if session.binds.get(task.key) == task.node
        },
        promised=promised,
        waiting=tuple(task.key for task in job.of(TaskStatus.PENDING)),
        reason="" if reason is None else reason.reason,
        message="" if reason is None else reason.message,
    )


def _solo_name(job: VolcanoSessionJob) -> str:
    """The only pod, or the controller of the pods."""
    first = next(iter(job.tasks.values()))
    owner = first.pod.controller
    return first.key if owner is None else f"{first.pod.namespace}/{owner.kind}/{owner.name}"


def _orphans(state: VolcanoState) -> Iterator[JobReport]:
    for uid, members in state.orphans.items():
        namespace, _, name = uid.partition("/")
        tasks = [state.tasks[one] for one in members if one in state.tasks]
        yield JobReport(
            uid=uid,
            name=uid,
            kind="PodGroup",
            queue="",
            priority=0,
            min_member=0,
            pods=len(tasks),
            ready=sum(task.status in ALLOCATED_STATUSES for task in tasks),
            waiting=tuple(task.key for task in tasks if task.status is TaskStatus.PENDING),
            reason=POD_GROUP_NOT_FOUND,
            message=f'podgroups "{name}" not found in namespace "{namespace}"',
        )


def _queues(session: VolcanoSession) -> Iterator[ModelQueue]:
    plugins = session.plugins.values()
    sharing = next((one for one in plugins if isinstance(one, QueuePlugin)), None)
    is_tree = sharing is not None and session.options.is_hierarchical(sharing.name)
    parents = {name: _parent(queue) if is_tree else "" for name, queue in session.queues.items()}
    reclaims = not RECLAIM_ACTIONS.isdisjoint(session.options.actions)
    jobs: dict[str, list[VolcanoSessionJob]] = {}
    for job in session.jobs.values():
        for name in _and_above(job.queue, parents):
            jobs.setdefault(name, []).append(job)
    for name in sorted(session.queues):
        held = None if sharing is None else sharing.attributes.get(name)
        queue, shares = session.queues[name], sharing is not None
        made = _queue(queue, held, jobs.get(name, []), parent=parents[name], shares=shares)
        yield made if reclaims and queue.is_reclaimable else replace(made, gives_back=False)


def _parent(queue: VolcanoQueue) -> str:
    return "" if queue.name == ROOT else queue.queue.spec.parent or ROOT


def _and_above(name: str, parents: Mapping[str, str]) -> list[str]:
    """A queue and those above it; each once, though the tree has a cycle."""
    found: list[str] = []
    while name in parents and name not in found:
        found.append(name)
        name = parents[name]
    return found


def _queue(
    queue: VolcanoQueue,
    held: QueueAttributes | None,
    jobs: list[VolcanoSessionJob],
    *,
    parent: str,
    shares: bool,
) -> ModelQueue:
    allocated, pending = VolcanoAmount(), VolcanoAmount()
    n_placed = n_pending = 0
    for job in jobs:
        allocated.add(job.allocated)
        n_placed += job.n_allocated
        for task in job.of(TaskStatus.PENDING):
            pending.add(task.request)
            n_pending += 1
    spec = queue.queue.spec
    return ModelQueue(
        name=queue.name,
        weight=queue.weight,
        pods_placed=n_placed,
        pods_pending=n_pending,
        allocated=plain(allocated if held is None else held.allocated),
        pending=plain(pending),
        deserved=None if not shares else {} if held is None else plain(held.deserved),
        share=None if not shares else 0.0 if held is None else held.share,
        capability=_stated(spec.capability),
        guarantee=_stated(spec.guarantee.resource),
        inqueue={} if held is None else plain(held.inqueue),
        parent=parent,
        state=queue.queue.status.state,
    )


def _stated(quantities: Mapping[str, Quantity]) -> dict[str, float]:
    found = plain(VolcanoAmount.of(quantities))
    return {name: n for name, n in found.items() if name in quantities}


def plain(amount: VolcanoAmount) -> dict[str, float]:
    """Resource -> cores, bytes or units; without resources of which there is no limit."""
    found = {}
    for name, n in amount.items():
        if name == PODS or n >= UNLIMITED or n >= 2.0**63 - 1:
            continue
        found[name] = float(round(n)) if name == "memory" else round(n / 1000, 3)
    return found
