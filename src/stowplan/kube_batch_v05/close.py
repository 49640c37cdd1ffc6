"""Session close: status and conditions of groups, and messages about pods without a node.

Source: kube-batch v0.5, framework/session.go (jobStatus), cache/cache.go (RecordJobStatusEvent).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from stowplan.framework.deciders.tasks import OCCUPYING, TaskStatus
from stowplan.kube_batch_v05.amounts import KubeBatchPanic
from stowplan.kube_batch_v05.jobs import (
    KubeBatchJob,
    KubeBatchPodGroup,
    KubeBatchTask,
    job_fit_error,
)
from stowplan.kube_batch_v05.session import KubeBatchSession
from stowplan.objects.podgroup import UNSCHEDULABLE, PodGroupCondition, PodGroupStatus

PENDING, RUNNING, UNKNOWN = "Pending", "Running", "Unknown"


class KubeBatchGroupUpdate(msgspec.Struct, frozen=True):
    """A group whose status is written, changed or not. notes: (type, reason, message) of events."""

    group: KubeBatchPodGroup
    notes: tuple[tuple[str, str, str], ...]


class KubeBatchClose(msgspec.Struct, frozen=True):
    """What a session writes when it closes. unplaced: (task, message)."""

    groups: list[KubeBatchGroupUpdate]
    unplaced: list[tuple[KubeBatchTask, str]]


def set_unschedulable(
    session: KubeBatchSession, job: KubeBatchJob, reason: str, message: str
) -> None:
    """Set the condition that a job cannot be scheduled; nothing removes it later.

    Raises KubeBatchPanic for a job without a PodGroup, that of a PodDisruptionBudget.
    """
    group = job.group
    if group is None:
        raise KubeBatchPanic("runtime error: invalid memory address or nil pointer dereference")
    new = PodGroupCondition(UNSCHEDULABLE, "True", session.uid, session.now, reason, message)
    others = [new if old.type == new.type else old for old in group.status.conditions]
    conditions = others if new in others else [*others, new]
    group.status = replace(group.status, conditions=tuple(conditions))


def close(session: KubeBatchSession) -> KubeBatchClose:
    """Run on_close of the plugins and compute the status of every group."""
    for plugin in session.plugins.values():
        plugin.on_close(session)
    result = KubeBatchClose([], [])
    for job in session.jobs.values():
        group = job.group
        if group is not None:
            group.status = _status(session, job, group)
            if not group.is_solo:
                notes = tuple(_notes(job, group.status))
                result.groups.append(KubeBatchGroupUpdate(group, notes))
        message = job_fit_error(job)
        for status in (TaskStatus.ALLOCATED, TaskStatus.PENDING):
            result.unplaced.extend((task, message) for task in job.of(status).values())
    return result


def _status(
    session: KubeBatchSession, job: KubeBatchJob, group: KubeBatchPodGroup
) -> PodGroupStatus:
    running = len(job.of(TaskStatus.RUNNING))
    is_unschedulable = any(
        c.type == UNSCHEDULABLE and c.status == "True" and c.transition_id == session.uid
        for c in group.status.conditions
    )
    if running and is_unschedulable:
        phase = UNKNOWN
    else:
        # Pods that have succeeded do not count: a finished group is pending again.
        phase = RUNNING if job.count(OCCUPYING) >= group.min_member else PENDING
    return replace(
        group.status,
        phase=phase,
        running=running,
        succeeded=len(job.of(TaskStatus.SUCCEEDED)),
        failed=len(job.of(TaskStatus.FAILED)),
    )


def _notes(job: KubeBatchJob, status: PodGroupStatus) -> Iterator[tuple[str, str, str]]:
    if status.phase in (UNKNOWN, PENDING):
        n_pending = len(job.of(TaskStatus.PENDING))
        error = job_fit_error(job)
        text = f"{n_pending}/{len(job.tasks)} tasks in gang unschedulable: {error}"
        yield "Warning", UNSCHEDULABLE, text
