"""drf: jobs with the smallest dominant share of the cluster are served first.

Theory: A. Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource Types,
NSDI 2011. Source: kube-batch v0.5, plugins/drf.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stowplan.batch.session import Session, SessionPlugin
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.session_state import TaskEventHandlers
from stowplan.framework.deciders.resource_vector import ResourceVector, share_of

SHARE_DELTA = 0.000001


class JobShare:
    """Allocation and dominant share of a job, now and at the opening of the session."""

    __slots__ = ("allocated", "open_allocated", "open_share", "share")

    def __init__(self, allocated: ResourceVector, share: float) -> None:
        self.allocated = allocated
        self.share = share
        self.open_allocated = allocated.copy()
        self.open_share = share


_NO_CACHED_SHARE: tuple[Any, JobShare | None] = None, None


class DrfPlugin(SessionPlugin):
    """Orders jobs by share; takes victims only from jobs whose share stays larger."""

    name = "drf"

    def __init__(self, arguments: Mapping[str, str]) -> None:
        super().__init__(arguments)
        self.total = ResourceVector()
        self.shares: dict[str, JobShare] = {}
        self._resources: tuple[str, ...] = ()

    def on_open(self, session: Session) -> None:
        """Register job order, victims and event handlers that update the shares."""
        self._session = session
        session.hooks.register("preemptable", self.name, self.victims)
        session.hooks.register("job_order", self.name, self.job_order)
        session.state.handlers.append(TaskEventHandlers(self._allocated, self._deallocated))

    def on_start(self, session: Session) -> None:
        """Compute the share of every job."""
        self.total = session.state.nodes.total()
        self._resources = tuple(self.total.names())
        key = self.total.pairs()
        for job in session.jobs.values():
            whole, held = job.kept.get(self.name, _NO_CACHED_SHARE)
            if whole != key or held is None:
                allocated = job.allocated.copy()
                held = JobShare(allocated, self.share(allocated))
                job.kept[self.name] = key, held
            self.shares[job.uid] = held

    def share(self, allocated: ResourceVector) -> float:
        """The dominant share of an amount."""
        return max_share(allocated, self.total, self._resources)

    def job_order(self, first: JobInfo, second: JobInfo) -> int:
        """The smaller share goes first."""
        a, b = self.shares[first.uid].share, self.shares[second.uid].share
        return (a > b) - (a < b)

    def victims(self, task: TaskInfo, candidates: Sequence[TaskInfo]) -> list[TaskInfo]:
        """Candidates without which their job's share is still not smaller than that of the task's
        job with it.

        Victims of the task's own job are always allowed, since no other job loses. A job that
        cannot start may preempt jobs of lower priority whatever its share: a gang may need more
        than half of the cluster.
        """
        takes_below = self._takes_below(task)
        mine = self.shares[task.job].allocated.copy().add(task.ask.running)
        my_share = self.share(mine)
        left: dict[str, ResourceVector] = {}
        allowed = []
        for candidate in candidates:
            if candidate.job == task.job:
                allowed.append(candidate)
                continue
            if self._session.jobs[candidate.job].priority < takes_below:
                allowed.append(candidate)
                continue
            theirs = left.get(candidate.job)
            if theirs is None:
                theirs = left[candidate.job] = self.shares[candidate.job].allocated.copy()
            theirs.take(candidate.ask.running)
            their_share = self.share(theirs)
            if my_share < their_share or abs(my_share - their_share) <= SHARE_DELTA:
                allowed.append(candidate)
        return allowed

    def _takes_below(self, task: TaskInfo) -> float:
        """Jobs below this priority are not protected from the task's job."""
        session = self._session
        job = session.jobs[task.job]
        if session.hooks.job_pipelined(job):
            return -math.inf
        return job.priority

    def _allocated(self, task: TaskInfo) -> None:
        held = self.shares[task.job]
        held.allocated.add(task.ask.running)
        held.share = self.share(held.allocated)

    def _deallocated(self, task: TaskInfo) -> None:
        held = self.shares[task.job]
        held.allocated.take(task.ask.running)
        held.share = self.share(held.allocated)


def max_share(part: ResourceVector, whole: ResourceVector, resources: Iterable[str]) -> float:
    """The largest of the shares of `part` in `whole` over these resources."""
    share = 0.0
    for name in resources:
        share = max(share, share_of(part.get(name), whole.get(name)))
    return share
