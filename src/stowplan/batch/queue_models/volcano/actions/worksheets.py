"""Worksheets: which tasks of a job are to be placed, by sub-group, in order.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/allocate/allocate.go,
actions/utils/simulate.go.
"""

from __future__ import annotations

from functools import cmp_to_key

from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob, VolcanoSubJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.framework.deciders.heap import Heap


class JobWorksheet:
    """sub_jobs: sub-groups with tasks to place. tasks: sub-group -> those tasks."""

    def __init__(self, sub_jobs: Heap[VolcanoSubJob], tasks: dict[str, Heap[VolcanoTask]]) -> None:
        self.sub_jobs, self.tasks = sub_jobs, tasks

    @classmethod
    def of(
        cls, session: VolcanoSession, job: VolcanoSessionJob, *, with_admission: bool = True
    ) -> JobWorksheet:
        """What is left of a job. with_admission: also tasks that wait for Volcano's own gate."""
        required = _required(session, job)

        def before(left: VolcanoSubJob, right: VolcanoSubJob) -> bool:
            first, second = left.uid in required, right.uid in required
            return first if first != second else session.sub_job_before(left, right)

        sheet = cls(Heap(before), {})
        for uid, sub_job in job.sub_jobs.items():
            heap = session.sub_job_heap(sub_job, with_admission=with_admission)
            if heap is not None:
                sheet.sub_jobs.push(sub_job)
                sheet.tasks[uid] = heap
        return sheet

    @property
    def is_empty(self) -> bool:
        """True if nothing is left."""
        return not self.sub_jobs

    def copy(self) -> JobWorksheet:
        """A copy from which may be taken."""
        return JobWorksheet(
            self.sub_jobs.copy(), {k: heap.copy() for k, heap in self.tasks.items()}
        )

    def become(self, other: JobWorksheet) -> None:
        """Have left what another worksheet has."""
        self.sub_jobs, self.tasks = other.sub_jobs, other.tasks


def _required(session: VolcanoSession, job: VolcanoSessionJob) -> set[str]:
    """The first sub-groups that a job needs to be placed."""
    if not any(job.min_sub_jobs.values()):
        return set()
    counts: dict[str, int] = {}
    rest = []
    for sub_job in job.sub_jobs.values():
        if session.is_sub_job_ready(job, sub_job):
            counts[sub_job.group] = counts.get(sub_job.group, 0) + 1
        else:
            rest.append(sub_job)
    rest.sort(key=cmp_to_key(lambda a, b: -1 if session.sub_job_before(a, b) else 1))
    required = set()
    for sub_job in rest:
        if counts.get(sub_job.group, 0) < job.min_sub_jobs.get(sub_job.group, 0):
            required.add(sub_job.uid)
            counts[sub_job.group] = counts.get(sub_job.group, 0) + 1
    return required
