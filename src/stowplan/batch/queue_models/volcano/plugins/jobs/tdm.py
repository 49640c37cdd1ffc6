"""tdm: nodes that are shared by time of day.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/tdm/tdm.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.pod_rules import PASSES, UNRESOLVABLE
from stowplan.batch.queue_models.volcano.volcano_defects import NIGHT_WINDOW
from stowplan.batch.queue_models.volcano.volcano_hooks import PERMIT, REJECT, VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import duration_s
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Floats, Ints
from stowplan.framework.deciders.tasks import TaskStatus

ZONE = "tdm.revocable-zone."
PERIOD_S = 60.0


class Tdm(VolcanoPlugin):
    """Revocable zones: nodes that take tasks only at times, and only some."""

    name = "tdm"

    def open(self, session: VolcanoSession) -> None:
        """Read which zones are open now."""
        self._session = session
        self._open: dict[str, bool] = {}
        self._period_s = duration_s(self.arguments, "tdm.evict.period", PERIOD_S)
        for key, window in self.arguments.items():
            if ZONE in key:
                now = session.cluster.time_of_day
                nights = NIGHT_WINDOW in session.options.mends
                self._open[key.replace(ZONE, "", 1)] = is_within(window, now, nights=nights)

    def _is_open(self, zone: str) -> bool:
        return self._open.get(zone, False)

    def predicate(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Ints:
        """Nodes of a zone pass if it is open and the task accepts it."""
        passing = [
            not node.revocable_zone or (self._is_open(node.revocable_zone) and task.revocable_zone)
            for node in nodes
        ]
        return np.array([PASSES if one else UNRESOLVABLE for one in passing], dtype=np.int64)

    def node_order(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats:
        """100 on nodes of a zone for tasks that accept it; nan, an error, if it is closed."""
        return np.array(
            [self._score(task, node.revocable_zone) for node in nodes], dtype=np.float64
        )

    def _score(self, task: VolcanoTask, zone: str) -> float:
        if not zone:
            return 0.0
        if not self._is_open(zone):
            return float("nan")
        return 100.0 if task.revocable_zone else 0.0

    def preemptable(self, task: VolcanoTask, others: list[VolcanoTask]) -> list[VolcanoTask]:
        """Running tasks on other nodes, of each job no more than its budget allows."""
        if task.accepts_eviction or task.revocable_zone:
            return []
        by_job: dict[str, list[VolcanoTask]] = {}
        for other in others:
            node = self._session.nodes.get(other.node)
            is_running = other.status is TaskStatus.RUNNING and other.accepts_eviction
            if is_running and node is not None and not node.revocable_zone:
                by_job.setdefault(other.job, []).append(other)
        return self._within_budgets(by_job)

    def victim_tasks(self, running: Iterable[VolcanoTask]) -> list[VolcanoTask]:
        """Running tasks in closed zones, of each job no more than its budget allows; none before
        `tdm.evict.period` has passed since the last time."""
        cluster, victims = self._session.cluster, list[VolcanoTask]()
        last = cluster.last_runs.get(self.name)
        if last is not None and last + self._period_s > cluster.now:
            return []
        cluster.last_runs[self.name] = cluster.now
        for zone, is_open in self._open.items():
            if is_open:
                continue
            by_job: dict[str, list[VolcanoTask]] = {}
            for node in self._session.node_list:
                if node.revocable_zone != zone:
                    continue
                for task in node.tasks.values():
                    if task.accepts_eviction and task.status is TaskStatus.RUNNING:
                        by_job.setdefault(task.job, []).append(task)
            victims += self._within_budgets(by_job)
        return victims

    def _within_budgets(self, by_job: dict[str, list[VolcanoTask]]) -> list[VolcanoTask]:
        victims = []
        for uid, tasks in by_job.items():
            job = self._session.jobs.get(uid)
            if job is not None:
                victims += tasks[: max(evictions_max(job), 0)]
        return victims

    def job_order(self, left: VolcanoSessionJob, right: VolcanoSessionJob) -> int:
        """Jobs that accept no eviction come first."""
        return left.accepts_eviction - right.accepts_eviction

    def job_key(self, job: VolcanoSessionJob) -> bool:
        """See `job_order`."""
        return job.accepts_eviction

    def job_pipelined(self, job: VolcanoSessionJob) -> int:
        """Permit if enough is placed or waits."""
        return PERMIT if job.is_pipelined else REJECT

    def job_starving(self, job: VolcanoSessionJob) -> bool:
        """True for jobs with pending tasks that accept no eviction."""
        return not job.accepts_eviction and bool(job.of(TaskStatus.PENDING))


def is_within(window: object, minute: int, *, nights: bool = True) -> bool:
    """True if a minute of the day is in a window `HH:MM-HH:MM`, both ends included.

    A window that ends before it starts ends on the next day. nights: its hours after midnight are
    inside.
    """
    parts = window.strip().split("-") if isinstance(window, str) else []
    times = [_minute(part) for part in parts]
    if len(times) != 2 or times[0] is None or times[1] is None:
        return False
    start, end = times[0], times[1]
    if start < end:
        return start <= minute <= end
    return minute >= start or (nights and minute <= end)


def _minute(text: str) -> int | None:
    hours, colon, minutes = text.partition(":")
    if not colon or not (hours.isdigit() and minutes.isdigit() and len(minutes) == 2):
        return None
    if len(hours) > 2 or int(hours) > 23 or int(minutes) > 59:
        return None
    return int(hours) * 60 + int(minutes)


def evictions_max(job: VolcanoSessionJob) -> int:
    """How many tasks of a job its budget allows to evict; 1 without a budget."""
    n_tasks, n_running = len(job.tasks), len(job.of(TaskStatus.RUNNING))
    if job.keep_unavailable:
        n_ended = len(job.of(TaskStatus.SUCCEEDED)) + len(job.of(TaskStatus.FAILED))
        n_unavailable = n_tasks - n_ended - n_running
        return max(_number_or_percent(job.keep_unavailable, n_tasks) - n_unavailable, 0)
    if job.keep_available:
        least = _number_or_percent(job.keep_available, n_tasks)
        if n_running >= least:
            return n_running - least
    return 1


def _number_or_percent(text: str, whole: int) -> int:
    """A number, or a percentage of the whole, rounded up; 0 for another text."""
    digits = text.removesuffix("%")
    sign = -1 if digits.startswith("-") else 1
    if not digits.lstrip("+-").isdigit():
        return 0
    number = sign * int(digits.lstrip("+-"))
    return -(-number * whole // 100) if text.endswith("%") else number
