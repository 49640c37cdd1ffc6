"""Session close: phase and conditions of groups, and events for users.

Source: kube-batch v0.5, framework/session.go (jobStatus), cache/cache.go (RecordJobStatusEvent),
api/job_info.go (FitError).
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from stowplan.batch.state.jobs import JobInfo, PodGroupInfo
from stowplan.batch.state.session_state import SessionState
from stowplan.framework.deciders.tasks import OCCUPYING, TaskStatus
from stowplan.objects.podgroup import UNSCHEDULABLE, PodGroupCondition, PodGroupStatus

PENDING, RUNNING, UNKNOWN, COMPLETED = "Pending", "Running", "Unknown", "Completed"
SCHEDULED = "Scheduled"


REPORTED = "reported"
"""Key under which a job keeps what has been reported about it."""


class PodGroupStatusUpdate(msgspec.Struct, frozen=True):
    """A group's status to be written. notes: (type, reason, message) of events."""

    group: PodGroupInfo
    status: PodGroupStatus
    is_changed: bool
    notes: tuple[tuple[str, str, str], ...] = ()


class PodFitError(msgspec.Struct, frozen=True):
    """A pod that was not placed in this session: a condition, and an event FailedScheduling."""

    uid: str
    key: str
    message: str


class SessionClose:
    """Collects conditions during a session and computes statuses at its end."""

    def __init__(self, state: SessionState, uid: str, now: datetime.datetime | None) -> None:
        self._session_state = state
        self._uid = uid
        self._now = now
        self._before: dict[str, PodGroupStatus] = {}
        self._reported_conditions: dict[str, tuple[str, str]] = {}

    def set_condition(self, job: JobInfo, reason: str, message: str) -> None:
        """Set the condition that a job cannot be scheduled, replacing an earlier one."""
        group = job.group
        if group is None:
            return
        self._before.setdefault(job.uid, group.status)
        self._reported_conditions[job.uid] = reason, message
        condition = PodGroupCondition(UNSCHEDULABLE, "True", self._uid, self._now, reason, message)
        self._put(group, condition)

    def close(
        self, jobs: Iterable[JobInfo]
    ) -> tuple[list[PodGroupStatusUpdate], list[PodFitError]]:
        """Compute the status and events of each job."""
        writes: list[PodGroupStatusUpdate] = []
        notes: list[PodFitError] = []
        reported = self._reported_conditions
        for job in jobs:
            group = job.group
            # Nothing new: no task has changed, and the same has been reported before.
            key = (group, reported.get(job.uid), job.fit_errors, job.short_by)
            if job.kept.get(REPORTED) == key:
                continue
            job.kept[REPORTED] = (*key[:3], dict(job.short_by))
            if group is not None:
                before = self._before.get(job.uid, group.status)
                self._clear_condition(job, group)
                group.status = self._status(job, group)
                changed = not is_same_status(before, group.status)
                if not group.is_solo and changed:
                    events = tuple(self._events(job, group))
                    writes.append(PodGroupStatusUpdate(group, group.status, changed, events))
            notes += self._notes(job)
        return writes, notes

    def _status(self, job: JobInfo, group: PodGroupInfo) -> PodGroupStatus:
        running = len(job.of(TaskStatus.RUNNING))
        succeeded = len(job.of(TaskStatus.SUCCEEDED))
        failed = len(job.of(TaskStatus.FAILED))
        phase = self._phase(job, group, running, succeeded)
        return replace(
            group.status, phase=phase, running=running, succeeded=succeeded, failed=failed
        )

    def _phase(self, job: JobInfo, group: PodGroupInfo, running: int, succeeded: int) -> str:
        unschedulable = any(
            c.type == UNSCHEDULABLE and c.status == "True" and c.transition_id == self._uid
            for c in group.status.conditions
        )
        if running and unschedulable:
            return UNKNOWN
        taking = job.count(OCCUPYING)
        if unschedulable and not taking + succeeded:
            return PENDING
        if job.tasks and succeeded >= max(group.min_member, 1) and succeeded == len(job.tasks):
            return COMPLETED
        return RUNNING if taking + succeeded >= group.min_member else PENDING

    def _clear_condition(self, job: JobInfo, group: PodGroupInfo) -> None:
        """A running group is no longer unschedulable, whatever an earlier session reported."""
        for condition in group.status.conditions:
            stale = condition.type == UNSCHEDULABLE and condition.transition_id != self._uid
            if stale and condition.status == "True" and job.is_ready:
                message = "tasks in gang are ready to be scheduled"
                self._before.setdefault(job.uid, group.status)
                condition = PodGroupCondition(
                    UNSCHEDULABLE, "False", self._uid, self._now, SCHEDULED, message
                )
                self._put(group, condition)

    def _put(self, group: PodGroupInfo, condition: PodGroupCondition) -> None:
        group.status = with_condition(group.status, condition)

    def _events(self, job: JobInfo, group: PodGroupInfo) -> Iterator[tuple[str, str, str]]:
        if group.status.phase in (UNKNOWN, PENDING):
            pending = len(job.of(TaskStatus.PENDING))
            text = f"{pending}/{len(job.tasks)} tasks in gang unschedulable: {job_fit_error(job)}"
            own = (c for c in group.status.conditions if c.transition_id == self._uid)
            text = next((c.message for c in own if c.type == UNSCHEDULABLE), text)
            yield "Warning", UNSCHEDULABLE, text

    def _notes(self, job: JobInfo) -> Iterator[PodFitError]:
        message = job_fit_error(job)
        for status in (TaskStatus.ALLOCATED, TaskStatus.PENDING):
            for task in job.of(status).values():
                yield PodFitError(task.uid, task.key, message)


def with_condition(status: PodGroupStatus, added: PodGroupCondition) -> PodGroupStatus:
    """A status with a condition added, replacing one of the same type."""
    conditions = list(status.conditions)
    for index, condition in enumerate(conditions):
        if condition.type == added.type:
            conditions[index] = added
            break
    else:
        conditions.append(added)
    return replace(status, conditions=tuple(conditions))


def is_same_status(before: PodGroupStatus, after: PodGroupStatus) -> bool:
    """True if both are equal apart from times and session ids."""
    return _without_times(before) == _without_times(after)


def _without_times(status: PodGroupStatus) -> PodGroupStatus:
    conditions = tuple(
        replace(c, transition_id="", last_transition_time=None) for c in status.conditions
    )
    return replace(status, conditions=conditions)


def job_fit_error(job: JobInfo) -> str:
    """Why the last task of the job that found no node found none."""
    if job.fit_errors:
        return job.fit_errors
    if not job.short_by:
        return "0 nodes are available"
    reasons: Counter[str] = Counter()
    for left in job.short_by.values():
        for name in left.names():
            if left.get(name) < 0:
                reasons[name] += 1
    texts = sorted(f"{count} insufficient {name}" for name, count in reasons.items())
    return f"0/{len(job.short_by)} nodes are available, {', '.join(texts)}."
