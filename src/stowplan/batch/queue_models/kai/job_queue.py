"""The order in which jobs of KAI-Scheduler come: a tree of heaps, of queues and of their jobs.

For victims all comparisons are turned round, and what was taken out of a queue counts as gone from
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from stowplan.batch.queue_models.kai.binary_heap import BinaryHeap
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_queue import KaiQueue, Shares, comes_first
from stowplan.batch.queue_models.kai.state.kai_task import ACTIVE_STATUSES, KaiStatus


class JobFilters(msgspec.Struct, frozen=True):
    """Which jobs are put in."""

    ready: bool = False
    pending: bool = False
    preemptible: bool = False
    active: bool = False
    may_evict: bool = False


NOTHING: Shares = (0.0, 0.0, 0.0)


class _Branch:
    """A queue with its queues, or with its jobs if it is a leaf."""

    def __init__(self, queue: KaiQueue, is_leaf: bool, jobs: JobQueue) -> None:
        self.queue = queue
        self.is_leaf = is_leaf
        self.branches = BinaryHeap[_Branch](jobs.is_queue_before)
        self.jobs = BinaryHeap[KaiJob](jobs.is_job_before)
        self.parent: _Branch | None = None
        self.has_changed = False

    def __len__(self) -> int:
        return len(self.jobs) if self.is_leaf else len(self.branches)


class JobQueue:
    """Jobs of a session, taken out one by one."""

    def __init__(
        self,
        session: KaiSession,
        jobs: Iterable[KaiJob],
        filters: JobFilters,
        of_victims: bool = False,
    ) -> None:
        self._session = session
        self._of_victims = of_victims
        self._roots = BinaryHeap[_Branch](self.is_queue_before)
        self._branches: dict[str, _Branch] = {}
        self._gone: dict[str, list[Shares]] = defaultdict(list)
        for job in jobs:
            if self._passes(job, filters):
                self.push(job)

    def __len__(self) -> int:
        return len(self._roots)

    def _passes(self, job: KaiJob, filters: JobFilters) -> bool:
        if filters.ready and not job.root.is_ready:
            return False
        if filters.pending and not job.has_status(KaiStatus.PENDING):
            return False
        if filters.preemptible and not job.is_preemptible:
            return False
        if filters.active and not any(t.status & ACTIVE_STATUSES for t in job.tasks()):
            return False
        queue = self._session.queues.queues.get(job.queue)
        if queue is None or queue.children:
            return False
        return not (filters.may_evict and job.is_delayed(self._session.now))

    def push(self, job: KaiJob) -> None:
        """Put a job in."""
        branch = self._branches.get(job.queue)
        is_new = branch is None
        if branch is None:
            queue = self._session.queues.queues[job.queue]
            branch = self._branches[job.queue] = _Branch(queue, True, self)
        branch.jobs.push(job)
        if is_new:
            self._link(branch)
        self._mark(branch)

    def pop(self) -> KaiJob:
        """Take the next job out."""
        branch = self._first(self._roots)
        while not branch.is_leaf:
            branch = self._first(branch.branches)
        job = branch.jobs.pop()
        if self._of_victims:
            self._gone[branch.queue.name].append(job.index.shares(job.allocated))
        self._prune(branch)
        return job

    def _link(self, branch: _Branch) -> None:
        while branch.queue.parent:
            parent = self._branches.get(branch.queue.parent)
            is_new = parent is None
            if parent is None:
                queue = self._session.queues.queues[branch.queue.parent]
                parent = self._branches[queue.name] = _Branch(queue, False, self)
            if branch.parent is None:
                branch.parent = parent
                parent.branches.push(branch)
            if not is_new:
                return
            branch = parent
        self._roots.push(branch)

    def _first(self, heap: BinaryHeap[_Branch]) -> _Branch:
        while heap.items[0].has_changed:
            branch = heap.items[0]
            heap.fix_first()
            branch.has_changed = False
        return heap.items[0]

    def _mark(self, branch: _Branch | None) -> None:
        while branch is not None:
            branch.has_changed = True
            branch = branch.parent

    def _prune(self, branch: _Branch | None) -> None:
        while branch is not None and len(branch) == 0:
            (branch.parent.branches if branch.parent else self._roots).pop()
            del self._branches[branch.queue.name]
            branch = branch.parent
        self._mark(branch)

    # Comparisons.

    def is_job_before(self, left: KaiJob, right: KaiJob) -> bool:
        """Whether a job of a queue comes before another one."""
        return (left.order() < right.order()) != self._of_victims

    def is_queue_before(self, left: _Branch, right: _Branch) -> bool:
        """Whether a queue comes before another one, by its next job."""
        if len(left) == 0:
            return not self._of_victims
        if len(right) == 0:
            return self._of_victims
        left_job, left_gone = self._next(left)
        right_job, right_gone = self._next(right)
        is_first = comes_first(
            left.queue, right.queue, left_job, right_job, left_gone, right_gone,
            self._session.queues.total,
        )  # fmt: skip
        return is_first != self._of_victims

    def _next(self, branch: _Branch) -> tuple[Shares, list[Shares]]:
        while not branch.is_leaf:
            branch = branch.branches.items[0]
        if len(branch) == 0:
            return NOTHING, []
        job = branch.jobs.items[0]
        if not self._of_victims:
            return self._session.wanted(job), []
        return NOTHING, [*self._gone[branch.queue.name], job.index.shares(job.allocated)]
