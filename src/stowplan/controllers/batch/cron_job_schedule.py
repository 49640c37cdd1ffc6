"""Which start of a CronJob is due, and when the next one is.

Source: kube-controller-manager v1.36, pkg/controller/cronjob/utils.go (mostRecentScheduleTime,
nextScheduleTimeDuration).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stowplan.apis.batch.cron_schedule import CronSchedule, ScheduleError
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.objects.encoding.tree import Tree

MISSED_MAX = 100
"""More missed starts than this are reported, and only the last is made up for."""
NEXT_DELAY_SECONDS = 0.1
"""A CronJob is synced this long after it is due, as in the original."""


class DueStart(NamedTuple):
    """The latest start that is due. earliest: what starts count from (Unix seconds).

    due: None if there is none. missed: number of starts since `earliest`, estimated by the distance
    of the first two.
    """

    earliest: float
    due: int | None
    missed: int


def latest_start(
    cron_job: Tree, schedule: CronSchedule, now: float, *, is_limited: bool
) -> DueStart:
    """The latest start due at `now`, after the last one or the creation.

    is_limited: whether `startingDeadlineSeconds` counts. Raises ScheduleError for a schedule that
    is never due, such as 31 February.
    """
    earliest = unix_seconds(
        (cron_job.get("status") or {}).get("lastScheduleTime")
        or cron_job["metadata"].get("creationTimestamp")
    )
    deadline = cron_job["spec"].get("startingDeadlineSeconds")
    if is_limited and deadline is not None:
        earliest = max(earliest, now - deadline)
    first = schedule.next_after(earliest)
    if first is not None and now < first:
        return DueStart(earliest, None, 0)
    second = None if first is None else schedule.next_after(first)
    if first is None or second is None:
        raise ScheduleError("time difference between two schedules is less than 1 second")
    if now < second:
        return DueStart(earliest, first, 0)
    apart = second - first
    missed = math.floor(now - first) // apart + 1
    found = None
    # One distance further back than the estimate: distances of a schedule may differ.
    following = schedule.next_after(first + (missed - 2) * apart)
    while following is not None and following <= now:
        found, following = following, schedule.next_after(following)
    return DueStart(earliest, found, missed)


def next_sync_at(cron_job: Tree, schedule: CronSchedule, now: float) -> float | None:
    """When to sync the CronJob for its next start; None if it has none."""
    since: float
    try:
        start = latest_start(cron_job, schedule, now, is_limited=False)
    except ScheduleError:
        since = now
    else:
        since = start.earliest if not start.missed else now
        if start.due is not None:
            since = start.due
    following = schedule.next_after(since)
    return None if following is None else following + NEXT_DELAY_SECONDS
