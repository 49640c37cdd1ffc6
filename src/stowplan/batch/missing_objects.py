"""Missing objects: jobs whose queue or PodGroup does not exist are reported, not scheduled.

Their pods get the condition PodScheduled=False and an event, the PodGroup the condition
Unschedulable and an event; neither is repeated unless it changes.

Differs: kube-batch silently skips such jobs.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Protocol

import msgspec

from stowplan.batch.hook_contracts import ValidateResult
from stowplan.batch.session_close import (
    PENDING,
    REPORTED,
    UNKNOWN,
    PodFitError,
    is_same_status,
    with_condition,
)
from stowplan.batch.state.inventory import Inventory
from stowplan.batch.state.jobs import JobInfo, PodGroupInfo
from stowplan.framework.deciders.session_decider import PodGroupReport
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.podgroup import UNSCHEDULABLE, PodGroupCondition

QUEUE_NOT_FOUND = "QueueNotFound"
POD_GROUP_NOT_FOUND = "PodGroupNotFound"


class NamedObjects(Protocol):
    """Objects that a job refers to. group: None for none. queue: its name."""

    uid: str
    has_budget: bool
    queue: str

    @property
    def group(self) -> object:
        """The PodGroup."""


def missing(job: NamedObjects, queues: Container[str], default_queue: str) -> ValidateResult | None:
    """The missing object that a job refers to, as reason and message; None if both exist."""
    if job.group is None and not job.has_budget:
        namespace, _, name = job.uid.partition("/")
        text = f'podgroups "{name}" not found in namespace "{namespace}"'
        return ValidateResult(POD_GROUP_NOT_FOUND, text)
    if job.queue in queues:
        return None
    text = f'queues "{job.queue}" not found'
    if job.queue == default_queue:
        text += "; it is the default queue (batch.defaultQueue)"
    return ValidateResult(QUEUE_NOT_FOUND, text)


def report_missing(
    inventory: Inventory, session: str
) -> tuple[list[PodGroupReport], list[PodFitError]]:
    """New reports and notes about such jobs; they are recorded as made.

    session: name of the session, for conditions.
    """
    reports: list[PodGroupReport] = []
    notes: list[PodFitError] = []
    for job in inventory.jobs.values():
        problem = missing(job, inventory.queues, inventory.default_queue)
        if problem is None or job.kept.get(REPORTED) == (job.group, problem):
            continue
        job.kept[REPORTED] = (job.group, problem)
        notes += (
            PodFitError(t.uid, t.key, problem.message) for t in job.of(TaskStatus.PENDING).values()
        )
        if job.group is not None and not job.group.is_solo:
            reports += _reports(job, job.group, problem, session)
    return reports, notes


def _reports(
    job: JobInfo, group: PodGroupInfo, problem: ValidateResult, session: str
) -> Iterator[PodGroupReport]:
    condition = PodGroupCondition(
        UNSCHEDULABLE, "True", session, None, problem.reason, problem.message
    )
    phase = UNKNOWN if job.of(TaskStatus.RUNNING) else PENDING
    status = msgspec.structs.replace(with_condition(group.status, condition), phase=phase)
    if is_same_status(group.status, status):
        return
    group.status = status
    note = ("Warning", UNSCHEDULABLE, problem.message)
    yield PodGroupReport(group.uid, group.namespace, group.name, group.api_version, status, (note,))
