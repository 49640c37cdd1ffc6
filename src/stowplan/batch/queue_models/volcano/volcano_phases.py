"""Phases of PodGroups as a session leaves them.

Source: volcano master of 2026-08-20, pkg/scheduler/framework/session.go (jobStatus).
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_session_job import (
    INQUEUE_PHASE,
    PENDING_PHASE,
    VolcanoSessionJob,
)
from stowplan.batch.queue_models.volcano.volcano_task import COMPLETED_STATUSES
from stowplan.framework.deciders.tasks import TaskStatus

UNKNOWN_PHASE, COMPLETED_PHASE, RUNNING_PHASE = "Unknown", "Completed", "Running"


def phase_after(job: VolcanoSessionJob, *, has_gang: bool) -> str:
    """Phase of a group. has_gang: jobs that are not ready are reported as unschedulable."""
    is_broken = not job.is_ready and bool(job.of(TaskStatus.RUNNING)) and not only_releases(job)
    if has_gang and is_broken:
        return UNKNOWN_PHASE
    n_scheduled = job.n_scheduled + job.n_released
    if n_scheduled >= job.group.spec.min_member:
        is_over = n_scheduled == job.count(COMPLETED_STATUSES)
        return COMPLETED_PHASE if is_over else RUNNING_PHASE
    return job.phase if job.phase == INQUEUE_PHASE else PENDING_PHASE


def only_releases(job: VolcanoSessionJob) -> bool:
    """True if all that the job lacks is being released, and nothing is to be placed."""
    n_released = job.n_released
    if n_released == 0 or job.of(TaskStatus.PENDING) or job.of(TaskStatus.PIPELINED):
        return False
    return job.n_scheduled + n_released >= job.min_available
