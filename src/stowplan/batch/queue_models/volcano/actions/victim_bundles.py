"""Bundles: the tasks of a job that are evicted together.

A safe bundle has tasks that the job does not need for its gang; a whole bundle has the others.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/utils/bundle.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cmp_to_key

import msgspec

from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount, total_of
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import READY_STATUSES, VolcanoTask

SAFE, WHOLE = 0, 1


class VictimBundle(msgspec.Struct):
    """Tasks of a job. kind: SAFE or WHOLE. costs: what the job loses; nothing if it is safe."""

    kind: int
    job: VolcanoSessionJob
    tasks: list[VolcanoTask]
    costs: VolcanoAmount

    @property
    def frees(self) -> VolcanoAmount:
        """What its tasks request."""
        return total_of(task.request for task in self.tasks)

    def value(self, need: VolcanoAmount) -> float:
        """What it frees of what is needed, by what it costs."""
        costs = _in_terms_of(need, self.costs, capped=False)
        gain = _in_terms_of(need, self.frees, capped=True)
        return math.inf if costs == 0 else gain / costs


def _in_terms_of(need: VolcanoAmount, amount: VolcanoAmount, *, capped: bool) -> float:
    total = 0.0
    for name in need.names():
        share = amount.get(name) / need.get(name)
        total += min(share, 1.0) if capped else share
    return total


def bundles_of(job: VolcanoSessionJob, tasks: Iterable[VolcanoTask]) -> list[VictimBundle]:
    """The bundles of some tasks of a job."""
    ordered = sorted(tasks, key=lambda task: (task.priority, task.uid))
    if not ordered:
        return []
    surplus = job.n_ready - job.min_available
    if surplus < 0:
        return [VictimBundle(SAFE, job, ordered, VolcanoAmount())]
    spare = _Spare(job, surplus)
    kinds: tuple[list[VolcanoTask], list[VolcanoTask]] = ([], [])
    for task in ordered:
        kinds[SAFE if spare.take(task) else WHOLE].append(task)
    found = []
    if kinds[SAFE]:
        found.append(VictimBundle(SAFE, job, kinds[SAFE], VolcanoAmount()))
    if kinds[WHOLE]:
        costs = total_of(task.request for task in job.tasks.values())
        found.append(VictimBundle(WHOLE, job, kinds[WHOLE], costs))
    return found


class _Spare:
    """How many tasks of a job may go: in all, by role, and by sub-groups."""

    def __init__(self, job: VolcanoSessionJob, surplus: int) -> None:
        self._job, self._surplus = job, surplus
        self._by_role: dict[str, int] = {}
        if job.counts_roles:
            ready = job.per_role(READY_STATUSES, with_best_effort=True)
            self._by_role = {r: ready.get(r, 0) - n for r, n in job.min_by_role.items()}
        self._broken: set[str] = set()
        self._groups: dict[str, int] = {}
        for sub_job in job.sub_jobs.values() if job.min_sub_jobs else ():
            if sub_job.is_ready:
                self._groups[sub_job.group] = self._groups.get(sub_job.group, 0) + 1
            else:
                self._broken.add(sub_job.uid)
        for group, least in job.min_sub_jobs.items():
            self._groups[group] = self._groups.get(group, 0) - least

    def take(self, task: VolcanoTask) -> bool:
        """Count a task as gone, if it may go."""
        job = self._job
        if self._surplus <= 0 or self._by_role.get(task.role, 1) <= 0:
            return False
        sub_job = job.sub_jobs.get(job.sub_job_of(task.uid))
        if job.min_sub_jobs:
            if sub_job is None:
                return False
            if sub_job.uid not in self._broken and self._groups.get(sub_job.group, 0) <= 0:
                return False
        self._surplus -= 1
        if task.role in self._by_role:
            self._by_role[task.role] -= 1
        if job.min_sub_jobs and sub_job is not None and sub_job.uid not in self._broken:
            self._broken.add(sub_job.uid)
            self._groups[sub_job.group] -= 1
        return True


def allowed_bundles(bundles: Iterable[VictimBundle], allowed: set[str]) -> list[VictimBundle]:
    """Bundles of the tasks that may be evicted; a whole bundle counts only as a whole."""
    found = []
    for bundle in bundles:
        tasks = [task for task in bundle.tasks if task.uid in allowed]
        if bundle.kind == WHOLE and len(tasks) == len(bundle.tasks):
            found.append(bundle)
        elif bundle.kind == SAFE and tasks:
            found.append(VictimBundle(SAFE, bundle.job, tasks, bundle.costs))
    return found


def sorted_bundles(
    bundles: Iterable[VictimBundle],
    need: VolcanoAmount,
    before: Callable[[VolcanoSessionJob, VolcanoSessionJob], bool],
) -> list[VictimBundle]:
    """Bundles, the first to evict first: safe ones, then by `before`, value and name.

    before: of the owners; it may say yes, or no, in both directions.
    """

    def compare(left: VictimBundle, right: VictimBundle) -> int:
        if left.kind != right.kind:
            return left.kind - right.kind
        first, second = before(left.job, right.job), before(right.job, left.job)
        if first != second:
            return -1 if first else 1
        gains = left.value(need), right.value(need)
        if gains[0] != gains[1]:
            return -1 if gains[0] > gains[1] else 1
        keys = [(b.job.uid, b.tasks[0].uid, len(b.tasks)) for b in (left, right)]
        return (keys[0] > keys[1]) - (keys[0] < keys[1])

    return sorted(bundles, key=cmp_to_key(compare))
