"""VolcanoClose: statuses and events of PodGroups, and conditions of pods, when a session closes.

Differs: Volcano records the event of a group that cannot start in every session; here once for each
change.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/gang/gang.go (OnSessionClose),
framework/job_updater.go, api/job_info.go (FitError), cache/cache.go (RecordJobStatusEvent).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.batch.queue_models.volcano.model.volcano_phases import only_releases, phase_after
from stowplan.batch.queue_models.volcano.model.volcano_state import VolcanoState
from stowplan.batch.queue_models.volcano.reports.volcano_reasons import QUEUE_NOT_FOUND, JobReasons
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import (
    INQUEUE_PHASE,
    PENDING_PHASE,
    VolcanoSessionJob,
)
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.framework.deciders.session_decider import PodGroupReport, PodReport
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.podgroup import UNSCHEDULABLE, PodGroup, PodGroupCondition, PodGroupStatus

SCHEDULED = "Scheduled"
NOT_ENOUGH_RESOURCES = "NotEnoughResources"
GANG_READY = "tasks in gang are ready to be scheduled"
POD_GROUP_READY, POD_GROUP_NOT_READY = "pod group is ready", "pod group is not ready"
POD_GROUP_NOT_FOUND = "PodGroupNotFound"

LOOKED_AT_MAX = 200
"""Waiting jobs whose reason is looked at again in a session."""

_WAITING = (TaskStatus.ALLOCATED, TaskStatus.PENDING, TaskStatus.PIPELINED)
_TITLES = {status: status.title for status in TaskStatus}


class ClosedSession(msgspec.Struct, frozen=True):
    """What a session writes. unready: (group, number of missing pods). changes_phases: a phase has
    changed, by which the next session may decide more."""

    groups: list[PodGroupReport]
    pods: list[PodReport]
    unready: list[tuple[str, int]]
    changes_phases: bool


class VolcanoClose:
    """Knows what was reported of each job, so that an unchanged one costs little."""

    def __init__(self, state: VolcanoState) -> None:
        self._state = state
        self._reported: dict[str, tuple[Any, ...]] = {}
        self._texts: dict[str, str] = {}
        # Job -> its object, group, version and phase, and the key that follows from them.
        self._keys: dict[str, tuple[VolcanoSessionJob, PodGroup, int, str, tuple[Any, ...]]] = {}
        self._next = 0

    def close(self, session: VolcanoSession, name: str) -> ClosedSession:
        """Reports of groups and of pods, and the groups that are not ready. name: of the
        session."""
        phases, reasons = False, JobReasons(session)
        groups: list[PodGroupReport] = []
        pods: list[PodReport] = []
        unready: list[tuple[str, int]] = []
        has_gang = "gang" in session.plugins
        known: dict[str, tuple[Any, ...]] = {}
        waiting = []
        for job in session.jobs.values():
            key = self._key(job)
            known[job.uid] = key
            if not job.is_ready and job.tasks:
                unready.append((job.name, job.min_available - job.n_ready))
            if self._reported.get(job.uid) != key:
                text = self._text(job, reasons)
            elif not job.is_ready:
                waiting.append(job)
                continue
            else:
                continue
            status = _status(job, name, text, has_gang=has_gang)
            if status is not None:
                phases |= status.phase != job.group.status.phase
                known[job.uid] = (job.phase, status, *key[2:])
            self._report(job, status, text, groups, pods)
        for job in self._in_turn(waiting):
            before = self._texts.get(job.uid, "")
            if self._text(job, reasons) != before:
                text = self._texts[job.uid]
                status = _status(job, name, text, has_gang=has_gang)
                if status is not None:
                    known[job.uid] = (job.phase, status, *known[job.uid][2:])
                self._report(job, status, text, groups, pods)
        self._texts = {uid: text for uid, text in self._texts.items() if uid in known}
        if len(self._keys) > len(known):
            self._keys = {uid: kept for uid, kept in self._keys.items() if uid in known}
        self._reported = known | self._missing(session, pods)
        return ClosedSession(groups, pods, unready, phases)

    def _key(self, job: VolcanoSessionJob) -> tuple[Any, ...]:
        """What a report depends on, apart from other jobs."""
        kept = self._keys.get(job.uid)
        if kept is not None:
            seen, group, version, phase, key = kept
            if seen is job and group is job.group and version == job.version and phase == job.phase:
                return key
        key = (job.phase, job.group.status, tuple(job.statuses().items()), job.group.spec)
        self._keys[job.uid] = job, job.group, job.version, job.phase, key
        return key

    def _text(self, job: VolcanoSessionJob, reasons: JobReasons) -> str:
        """Why a job waits; remembered."""
        reason = reasons.of(job)
        self._texts[job.uid] = text = "" if reason is None else reason.message
        return text

    def _in_turn(self, jobs: list[VolcanoSessionJob]) -> list[VolcanoSessionJob]:
        """The next jobs whose reason is looked at again though they have not changed: others have.
        Sooner or later each has its turn."""
        if len(jobs) <= LOOKED_AT_MAX:
            return jobs
        first = self._next % len(jobs)
        self._next = first + LOOKED_AT_MAX
        return (jobs[first:] + jobs[:first])[:LOOKED_AT_MAX]

    def _report(
        self,
        job: VolcanoSessionJob,
        status: PodGroupStatus | None,
        text: str,
        groups: list[PodGroupReport],
        pods: list[PodReport],
    ) -> None:
        notes = tuple(_notes(job, status, text)) if status is not None else ()
        if job.is_pending and not job.tasks and text:
            # Volcano creates the pods of a Job only after this gate.
            notes = (("Normal", UNSCHEDULABLE, text),)
        if job.uid in self._state.solo:
            if status is not None:
                job.group = replace(job.group, status=status)
                job.phase = status.phase
        elif status is not None or notes:
            groups.append(_report(job, status, notes))
        pods += _pod_reports(job, text)

    def _missing(
        self, session: VolcanoSession, pods: list[PodReport]
    ) -> dict[str, tuple[Any, ...]]:
        """Report jobs whose queue or group does not exist."""
        known: dict[str, tuple[Any, ...]] = {}
        lacking: list[tuple[str, str, list[VolcanoTask]]] = [
            (job.uid, f'queues "{job.queue}" not found', list(job.of(TaskStatus.PENDING)))
            for job in self._state.jobs.values()
            if job.queue not in session.queues
        ]
        for uid, members in self._state.orphans.items():
            namespace, _, name = uid.partition("/")
            text = f'podgroups "{name}" not found in namespace "{namespace}"'
            tasks = [self._state.tasks[one] for one in members if one in self._state.tasks]
            lacking.append((uid, text, [t for t in tasks if t.status is TaskStatus.PENDING]))
        for uid, text, tasks in lacking:
            known[uid] = key = (text, len(tasks))
            if self._reported.get(uid) != key:
                pods += (PodReport(task.pod, text) for task in tasks)
        return known


def _report(
    job: VolcanoSessionJob, status: PodGroupStatus | None, notes: tuple[tuple[str, str, str], ...]
) -> PodGroupReport:
    group: PodGroup = job.group
    return PodGroupReport(
        group.metadata.uid, group.namespace, group.name, group.api_version, status, notes
    )


def _status(
    job: VolcanoSessionJob, name: str, text: str, *, has_gang: bool
) -> PodGroupStatus | None:
    """The status of a group; None if nothing but times would change."""
    before = job.group.status
    counts = {
        "running": len(job.of(TaskStatus.RUNNING)),
        "succeeded": len(job.of(TaskStatus.SUCCEEDED)),
        "failed": len(job.of(TaskStatus.FAILED)),
    }
    status = replace(before, phase=phase_after(job, has_gang=has_gang), **counts)
    condition = _condition(job, name, text) if has_gang and job.tasks else None
    if condition is not None:
        status = _with(status, condition)
    return None if _without_times(status) == _without_times(before) else status


def _condition(job: VolcanoSessionJob, name: str, text: str) -> PodGroupCondition | None:
    if job.is_ready:
        return PodGroupCondition(SCHEDULED, "True", name, None, GANG_READY, "")
    if only_releases(job):
        return None
    missing = job.min_available - job.n_ready
    message = f"{missing}/{len(job.tasks)} tasks in gang unschedulable: {fit_error(job, text)}"
    return PodGroupCondition(UNSCHEDULABLE, "True", name, None, NOT_ENOUGH_RESOURCES, message)


def fit_error(job: VolcanoSessionJob, text: str) -> str:
    """Counts of tasks by status, and the first reason. text: that reason, "" for none."""
    counts = [f"{n} {_TITLES[status]}" for status, n in job.statuses().items()]
    counts.append(f"{job.min_available} minAvailable")
    head = POD_GROUP_READY if job.is_ready else POD_GROUP_NOT_READY
    message = f"{head}, {', '.join(sorted(counts))}"
    n_pending = len(job.of(TaskStatus.PENDING))
    if n_pending:
        message += f"; Pending: {n_pending} Unschedulable"
    return f"{message}. Origin reason is: {text}" if text else message


def _notes(
    job: VolcanoSessionJob, status: PodGroupStatus, text: str
) -> Iterator[tuple[str, str, str]]:
    if status.phase in ("Unknown", PENDING_PHASE, INQUEUE_PHASE):
        if job.is_ready or not job.tasks:
            return
        n_pending = len(job.of(TaskStatus.PENDING))
        reason = fit_error(job, text)
        message = f"{n_pending}/{len(job.tasks)} tasks in gang unschedulable: {reason}"
        yield "Warning", UNSCHEDULABLE, message[:1024]
    else:
        yield "Normal", SCHEDULED, POD_GROUP_READY


def _pod_reports(job: VolcanoSessionJob, text: str) -> Iterator[PodReport]:
    for status in _WAITING:
        for task in job.of(status):
            if not task.is_gated:
                yield PodReport(task.pod, _message(job, task, text))


def _message(job: VolcanoSessionJob, task: VolcanoTask, text: str) -> str:
    if task.status is TaskStatus.ALLOCATED:
        return (
            f"Pod {task.key} can possibly be assigned to {task.node}, once minAvailable is "
            "satisfied"
        )
    if task.status is TaskStatus.PIPELINED:
        return (
            f"Pod {task.key} can possibly be assigned to {task.node}, once resource is released "
            "and minAvailable is satisfied"
        )
    return text or fit_error(job, "")


def _with(status: PodGroupStatus, added: PodGroupCondition) -> PodGroupStatus:
    rest = tuple(one for one in status.conditions if one.type != added.type)
    return replace(status, conditions=(*rest, added))


def _without_times(status: PodGroupStatus) -> PodGroupStatus:
    conditions: Iterable[PodGroupCondition] = (
        replace(one, transition_id="", last_transition_time=None) for one in status.conditions
    )
    return replace(status, conditions=tuple(sorted(conditions, key=lambda one: one.type)))


__all__ = ["POD_GROUP_NOT_FOUND", "QUEUE_NOT_FOUND", "VolcanoClose", "fit_error"]
