"""The order in which jobs of KAI-Scheduler come: a tree of heaps, of queues and of their jobs.

For victims all comparisons are turned round, and what was taken out of a queue counts as gone from
it.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from stowplan.batch.queue_models.kai.binary_heap import BinaryHeap
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_queue import (
    KaiQueue,
    QueueKey,
    QueueTree,
    Shares,
    comes_first,
    queue_key,
)


class JobFilters(msgspec.Struct, frozen=True):
    """Which jobs are put in."""

    ready: bool = False
    pending: bool = False
    preemptible: bool = False
    active: bool = False
    may_evict: bool = False


ANY = JobFilters()
NOTHING: Shares = (0.0, 0.0, 0.0)


NextJob: TypeAlias = Callable[["_Branch"], tuple[Shares, Sequence[Shares]]]


class SortedJobs:
    """Jobs of a queue whose order does not change while they are here: the first, or of victims the
    last in the order, comes out next."""

    def __init__(self, jobs: Iterable[KaiJob], of_victims: bool) -> None:
        """jobs: in their order."""
        self._jobs = list(jobs)
        self._at = 0
        self._of_victims = of_victims

    def __len__(self) -> int:
        return len(self._jobs) - self._at

    @property
    def first(self) -> KaiJob:
        """The next job."""
        return self._jobs[-1 if self._of_victims else self._at]

    def push(self, job: KaiJob) -> None:
        """Put a job in."""
        insort(self._jobs, job, self._at, key=KaiJob.order)

    def pop(self) -> KaiJob:
        """Take the next job out."""
        if self._of_victims:
            return self._jobs.pop()
        self._at += 1
        return self._jobs[self._at - 1]

    def skip(self, session: KaiSession, is_left_out: Callable[[KaiJob], bool]) -> None:
        """Leave out the next jobs, of those that wait, which are left out and are followed by one
        that asks for the same."""
        jobs, at, last = self._jobs, self._at, len(self._jobs) - 1
        while at < last and is_left_out(jobs[at]):
            if session.wanted(jobs[at]) != session.wanted(jobs[at + 1]):
                break
            at += 1
        self._at = at


class _Branch:
    """A queue with its queues, or with its jobs if it is a leaf."""

    def __init__(self, queue: KaiQueue, jobs: BinaryHeap[KaiJob] | SortedJobs | None) -> None:
        self.queue = queue
        self.jobs = jobs
        self.branches: BinaryHeap[_Branch]
        self.parent: _Branch | None = None
        self.has_changed = False
        self.n_changes = 0
        self._key: QueueKey | None = None
        self._key_of = (-1, -1)

    def __len__(self) -> int:
        return len(self.branches) if self.jobs is None else len(self.jobs)

    def key(self, tree: QueueTree, next_job: NextJob) -> QueueKey:
        """Its place among others, see `queue_key`; counted anew when something has changed.
        next_job: of a branch, with its victims."""
        of = tree.version, self.n_changes
        if self._key is None or self._key_of != of:
            self._key, self._key_of = queue_key(self.queue, *next_job(self), tree.total), of
        return self._key


def in_order(
    session: KaiSession, jobs: Iterable[KaiJob], filters: JobFilters
) -> Mapping[str, Sequence[KaiJob]]:
    """Leaf queue -> its jobs that pass, in their order."""
    leaves: dict[str, list[KaiJob]] = defaultdict(list)
    for job in jobs:
        if _passes(session, job, filters):
            leaves[job.queue].append(job)
    for own in leaves.values():
        own.sort(key=KaiJob.order)
    return leaves


def without_repeats(
    session: KaiSession, jobs: Iterable[KaiJob], matters: Callable[[KaiJob], bool]
) -> list[KaiJob]:
    """Jobs of a leaf queue in their order, of those that make no difference but by what they ask
    for only the first of several that ask for the same, one after the other."""
    found: list[KaiJob] = []
    last: Shares | None = None
    for job in jobs:
        if matters(job):
            last = None
        else:
            wanted = session.wanted(job)
            if wanted == last:
                continue
            last = wanted
        found.append(job)
    return found


def leaves_that_matter(
    session: KaiSession, names: Collection[str], all_: Iterable[str]
) -> set[str]:
    """Of all leaf queues those that may change the order of jobs of some: what is below the same
    child of their lowest common queue as one of them."""
    tree = session.queues
    paths = [[queue.name for queue in tree.path(name)] for name in names]
    common = 0
    for level in zip(*paths, strict=False):
        if len({*level}) > 1:
            break
        common += 1
    tops = {path[min(common, len(path) - 1)] for path in paths}
    return {name for name in all_ if any(queue.name in tops for queue in tree.up(name))} | {*names}


def _passes(session: KaiSession, job: KaiJob, filters: JobFilters) -> bool:
    if filters.pending and not job.n_pending:
        return False
    if filters.ready and not job.is_ready:
        return False
    if filters.preemptible and not job.is_preemptible:
        return False
    if filters.active and not job.active:
        return False
    queue = session.queues.queues.get(job.queue)
    if queue is None or queue.children:
        return False
    return not (filters.may_evict and job.is_delayed(session.now))


class JobQueue:
    """Jobs of a session, taken out one by one."""

    def __init__(
        self,
        session: KaiSession,
        jobs: Iterable[KaiJob] = (),
        filters: JobFilters = ANY,
        of_victims: bool = False,
    ) -> None:
        self._session = session
        self._of_victims = of_victims
        self._roots = BinaryHeap[_Branch](self.is_queue_before)
        self._branches: dict[str, _Branch] = {}
        self._gone: dict[str, list[Shares]] = defaultdict(list)
        given = [job for job in jobs if _passes(session, job, filters)]
        self._n_pushed = 0
        # Pods of such jobs change, and with them the order.
        self._moving = {job.queue for job in given if job.used}
        for job in given:
            self.push(job)

    def fill(self, leaves: Mapping[str, Sequence[KaiJob]]) -> None:
        """Put all jobs of leaf queues in, see `in_order`, whose order does not change while they
        are here."""
        for name, jobs in leaves.items():
            if jobs:
                queue = self._session.queues.queues[name]
                branch = _Branch(queue, SortedJobs(jobs, self._of_victims))
                self._branches[name] = branch
                self._link(branch)
                self._mark(branch)

    def __len__(self) -> int:
        return len(self._roots)

    def push(self, job: KaiJob) -> None:
        """Put a job in."""
        branch = self._branches.get(job.queue)
        is_new = branch is None
        if branch is None:
            queue = self._session.queues.queues[job.queue]
            branch = self._branches[job.queue] = _Branch(queue, self._holder(job.queue))
        assert branch.jobs is not None, "jobs are in leaf queues"
        branch.jobs.push(job)
        self._n_pushed += 1
        if is_new:
            self._link(branch)
        self._mark(branch)

    def _holder(self, name: str) -> BinaryHeap[KaiJob] | SortedJobs:
        """What holds the jobs of a leaf queue."""
        if name in self._moving or self._of_victims:
            return BinaryHeap[KaiJob](self.is_job_before)
        return SortedJobs((), self._of_victims)

    def pop(self, is_left_out: Callable[[KaiJob], bool] | None = None) -> KaiJob:
        """Take the next job out. is_left_out: whether the caller does nothing for a job as things
        are; of several such jobs that come one after the other not all come out."""
        now = self._session.queues.version, self._n_pushed
        heap = self._roots
        branch = self._first(heap, now)
        is_settled = heap.settled_at == now
        while branch.jobs is None:
            heap = branch.branches
            before = heap.items[0]
            branch = self._first(heap, now)
            is_settled &= branch is before and heap.settled_at == now
        # What comes out of a queue is the reason to compare it with others again: without effect
        # where that was done since something changed, and what comes next asks for the same. Where
        # another queue below comes first now, those above were compared by the next job of this
        # one's predecessor.
        if is_left_out is not None and is_settled and isinstance(branch.jobs, SortedJobs):
            branch.jobs.skip(self._session, is_left_out)
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
                parent = self._branches[queue.name] = _Branch(queue, None)
                parent.branches = BinaryHeap[_Branch](self.is_queue_before)
            if branch.parent is None:
                branch.parent = parent
                parent.branches.push(branch)
            if not is_new:
                return
            branch = parent
        self._roots.push(branch)

    def _first(self, heap: BinaryHeap[_Branch], now: tuple[int, int]) -> _Branch:
        while heap.items[0].has_changed:
            branch = heap.items[0]
            heap.fix_first()
            branch.has_changed = False
            heap.settled_at = now
        return heap.items[0]

    def _mark(self, branch: _Branch | None) -> None:
        while branch is not None:
            branch.has_changed = True
            branch.n_changes += 1
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
        tree = self._session.queues
        left_key, right_key = left.key(tree, self._next), right.key(tree, self._next)
        return comes_first(left.queue, right.queue, left_key, right_key) != self._of_victims

    def _next(self, branch: _Branch) -> tuple[Shares, list[Shares]]:
        while branch.jobs is None:
            branch = branch.branches.first
        if len(branch) == 0:
            return NOTHING, []
        job = branch.jobs.first
        if not self._of_victims:
            return self._session.wanted(job), []
        return NOTHING, [*self._gone[branch.queue.name], job.index.shares(job.allocated)]
