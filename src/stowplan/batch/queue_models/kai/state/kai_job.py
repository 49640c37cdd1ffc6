"""A pod group in a session of KAI-Scheduler: its pods, and which of them are placed or evicted
next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from functools import cached_property, cmp_to_key

import msgspec

from stowplan.batch.queue_models.kai.state.kai_amount import (
    CARDS,
    Amount,
    ResourceIndex,
    is_within,
    minus,
    plus,
)
from stowplan.batch.queue_models.kai.state.kai_task import (
    ACTIVE_STATUSES,
    ALIVE_STATUSES,
    ALLOCATED_STATUSES,
    KaiStatus,
    KaiTask,
)
from stowplan.batch.queue_models.kai.state.pod_sets import (
    KaiPodSet,
    Member,
    SubGroupSet,
    by_name,
    member_order,
)


class KaiGroupTerms(msgspec.Struct, frozen=True):
    """What a group's object says. created, last_start, last_eviction, stale_since: seconds; None
    if it never was. preemption_delay, grace: seconds, None if not given; a grace below 0 is for
    ever."""

    uid: str
    name: str
    queue: str
    priority: int
    is_preemptible: bool
    created: float
    last_start: float | None = None
    last_eviction: float | None = None
    stale_since: float | None = None
    preemption_delay: float | None = None
    grace: float | None = None


class KaiJob:
    """A pod group. allocated: what its pods with a node ask for. was_touched: a pod got another
    status since the job was made. outside: pods of unknown sub-groups, which do not count."""

    def __init__(self, terms: KaiGroupTerms, root: SubGroupSet, index: ResourceIndex) -> None:
        self.terms = terms
        self.uid = terms.uid
        self.queue = terms.queue
        self.priority = terms.priority
        self.is_preemptible = terms.is_preemptible
        self.last_start = terms.last_start
        self.last_eviction = terms.last_eviction
        self.root = root
        self.sets = by_name(root)
        self.index = index
        self.allocated: Amount = index.empty()
        self.was_touched = False
        self.outside: list[KaiTask] = []
        self._signature: str | None = None
        self._next: list[KaiTask] | None = None
        self._plain: tuple[list[KaiTask] | None, Mapping[tuple[float, ...], int]] | None = None
        self._wanted: Amount | None = None
        self._shares: tuple[float, float, float] | None = None
        self._order: tuple[int, int, float, str] | None = None
        self._requests: list[Amount] | None = None
        self._kind: int | None = None
        self._is_ready: bool | None = None
        self._counts: tuple[int, int, int] | None = None
        self._is_stale: bool | None = None

    # Pods.

    def add(self, task: KaiTask) -> None:
        """Take a pod in."""
        pods = self.sets.get(task.sub_group)
        if pods is None:
            self.outside.append(task)
            return
        pods.assign(task)
        self.forget_next()
        self._order = self._requests = None
        self._counts = self._is_stale = self._kind = self._is_ready = None
        if task.status & ALLOCATED_STATUSES:
            self.allocated = plus(self.allocated, task.request)

    def update(self, task: KaiTask, status: int) -> None:
        """Give a pod a status; the object that is given is the group's pod from now on."""
        pods = self.sets[task.sub_group]
        if pods.tasks[task.uid].status & ALLOCATED_STATUSES:
            self.allocated = minus(self.allocated, task.request)
        task.status = int(status)
        self.was_touched = True
        self.add(task)

    def tasks(self) -> list[KaiTask]:
        """All pods."""
        return [task for pods in self.sets.values() for task in pods.tasks.values()]

    def with_tasks(self, tasks: Iterable[KaiTask]) -> KaiJob:
        """A copy with copies of these pods alone."""
        copied = KaiJob(self.terms, self.root.clone(), self.index)
        copied.last_start = None
        for task in tasks:
            copied.add(task.clone())
        return copied

    def has_status(self, status: KaiStatus) -> bool:
        """Whether a pod has the status."""
        return any(status in pods.statuses.values() for pods in self.sets.values())

    # State.

    @cached_property
    def has_topology(self) -> bool:
        """A topology level matters for some of its pods."""
        return any(True for _ in self.root.constraints())

    @property
    def n_pending(self) -> int:
        """Pods that wait."""
        return (self._counts or self._count())[0]

    @property
    def active(self) -> int:
        """Pods with a place."""
        return (self._counts or self._count())[1]

    @property
    def used(self) -> int:
        """Pods on nodes."""
        return (self._counts or self._count())[2]

    def _count(self) -> tuple[int, int, int]:
        sets = self.sets.values()
        self._counts = (
            sum(pods.pending for pods in sets),
            sum(pods.active for pods in sets),
            sum(pods.used for pods in sets),
        )
        return self._counts

    @property
    def is_ready(self) -> bool:
        """Enough of its pods run or may run."""
        if self._is_ready is None:
            self._is_ready = self.root.is_ready
        return self._is_ready

    @property
    def is_alive(self) -> bool:
        """A pod runs or may run."""
        return any(task.status & ALIVE_STATUSES for task in self.tasks())

    @property
    def is_elastic(self) -> bool:
        """A pod set has more pods than it needs."""
        return any(pods.is_elastic for pods in self.sets.values())

    @property
    def is_gang_satisfied(self) -> bool:
        """Every pod set has the pods that it needs on nodes."""
        return all(pods.is_gang_satisfied for pods in self.sets.values())

    @property
    def is_stale(self) -> bool:
        """Runs with less than it needs."""
        if self._is_stale is None:
            self._is_stale = (
                self.used > 0
                and not self.is_gang_satisfied
                and not self.has_status(KaiStatus.SUCCEEDED)
            )
        return self._is_stale

    @property
    def is_waiting_gang(self) -> bool:
        """Waits for resources with pods that it needs."""
        for pods in self.sets.values():
            states = [task.status for task in pods.tasks.values()]
            placed = sum(1 for s in states if s & ACTIVE_STATUSES and s != KaiStatus.PIPELINED)
            if KaiStatus.PIPELINED in states and placed < pods.minimum:
                return True
        return False

    def is_delayed(self, now: float) -> bool:
        """May not evict yet."""
        return (self.terms.preemption_delay or 0.0) > 0 and now < self.delay_end

    @property
    def delay_end(self) -> float:
        """When it may evict, in seconds."""
        delay = max(self.terms.preemption_delay or 0.0, 0.0)
        return max(self.terms.created, self.last_eviction or self.terms.created) + delay

    def order(self) -> tuple[int, int, float, str]:
        """Jobs of a queue: priority, then those below their minimum before those at it before
        those above, then age and uid."""
        if self._order is None:
            self._order = (-self.priority, self._fill(), self.terms.created, self.uid)
        return self._order

    def _fill(self) -> int:
        is_exact = True
        for pods in self.sets.values():
            if pods.active < pods.minimum:
                return 0
            is_exact &= pods.active == pods.minimum
        return 1 if is_exact else 2

    @property
    def signature(self) -> str:
        """What the placement of its pods depends on apart from amounts, as the session opened."""
        if self._signature is None:
            self.make_signature()
        return self._signature or ""

    def make_signature(self) -> None:
        """Keep the signature that it has now, unless one is kept already."""
        if self._signature is None:
            self._signature = repr(sorted(pods.signature() for pods in self.sets.values()))

    def pending(self) -> list[KaiTask]:
        """Pods that wait."""
        return [task for task in self.tasks() if task.status == KaiStatus.PENDING]

    # What comes next.

    def forget_next(self) -> None:
        """Find anew which pods come next, as after a change."""
        self._next = self._wanted = self._shares = None

    def next_tasks(self, is_real: bool) -> list[KaiTask]:
        """Pods to place next: what the minimum lacks, then one at a time.

        Kept until a pod changes, also for the other kind of placement, as in the original.
        """
        if self._next is None:
            tasks = _from_group(self.root, is_real)
            self._next = tasks or None
            return tasks
        return self._next

    def next_plain_requests(self) -> Mapping[tuple[float, ...], int]:
        """Requests of the pods that come next and ask for nothing but amounts, with their numbers;
        only after `next_tasks`."""
        if self._plain is None or self._plain[0] is not self._next:
            counts = Counter(tuple(task.request) for task in self._next or () if task.is_plain)
            self._plain = self._next, counts
        return self._plain[1]

    def wanted(self, is_real: bool, card_memory: int | None) -> Amount:
        """What those pods ask for; shares in memory by the smallest card of the cluster."""
        if self._wanted is None:
            total = self.index.empty()
            for task in self.next_tasks(is_real):
                if task.may_be_placed(is_real):
                    total = plus(total, task.request)
                    total[CARDS] += task.cards.memory_as_cards(card_memory)
            self._wanted = total
        return self._wanted

    def wanted_shares(self, card_memory: int | None) -> tuple[float, float, float]:
        """What queues count for those pods, in a simulation."""
        if self._wanted is None or self._shares is None:
            self._shares = self.index.shares(self.wanted(False, card_memory))
        return self._shares

    def sorted_requests(self) -> list[Amount]:
        """What its pods that wait ask for, smallest first; those of which neither is smaller stay
        in the order of the pods."""
        if self._requests is None:
            self._requests = sorted(
                (task.request for task in self.pending()), key=cmp_to_key(_compare)
            )
        return self._requests

    @property
    def kind(self) -> int:
        """Equal for jobs with the same signature whose pods that wait ask for the same."""
        if self._kind is None:
            asked = tuple(tuple(request) for request in self.sorted_requests())
            self._kind = self.index.kind_of((self.signature, asked))
        return self._kind

    def next_victims(self) -> tuple[list[KaiTask], bool]:
        """Pods to evict next, and whether others stay: what is above the minimum, one at a time,
        then all."""
        tasks = _surplus(self.root) or [
            task for pods in self.sets.values() for task in _evictable(pods)
        ]
        return tasks, len(tasks) < self.active


def _compare(left: Amount, right: Amount) -> int:
    if left == right:
        return 0
    return is_within(right, left) - is_within(left, right)


def _from_group(group: SubGroupSet, is_real: bool) -> list[KaiTask]:
    members = sorted(group.members, key=member_order)
    if group.active < group.needed:
        tasks: list[KaiTask] = []
        for member in members[: group.needed]:
            if member.active < member.needed:
                tasks += _from_member(member, is_real)
        return tasks
    for member in members:
        if found := _from_member(member, is_real):
            return found
    return []


def _from_member(member: Member, is_real: bool) -> list[KaiTask]:
    if isinstance(member, SubGroupSet):
        return _from_group(member, is_real)
    tasks = [task for task in member.tasks.values() if task.may_be_placed(is_real)]
    tasks.sort(key=lambda task: task.order)
    return tasks[: max(1, member.minimum - member.active)]


def _evictable(pods: KaiPodSet) -> list[KaiTask]:
    active = [task for task in pods.tasks.values() if task.status & ACTIVE_STATUSES]
    return sorted(active, key=lambda task: task.order, reverse=True)


def _surplus(group: SubGroupSet) -> list[KaiTask]:
    satisfied = group.active
    if satisfied == 0:
        return []
    members = sorted(group.members, key=member_order, reverse=True)
    if _has_surplus(group):
        for member in members:
            if isinstance(member, SubGroupSet):
                found = _surplus(member)
            else:
                found = _evictable(member)[:1] if member.active > member.minimum else []
            if found:
                return found
    if group.needed < satisfied:
        for member in members:
            if found := [task for pods in member.pod_sets() for task in _evictable(pods)]:
                return found
    return []


def _has_surplus(member: Member) -> bool:
    if member.active > member.needed:
        return True
    return any(_has_surplus(one) for one in member.members)


def off_nodes(jobs: Mapping[str, KaiJob], nodes: Container[str]) -> frozenset[str]:
    """Uids of the jobs with pods on nodes that are gone. jobs: by uid. nodes: names."""
    return frozenset(
        uid
        for uid, job in jobs.items()
        if any(task.node not in nodes for task in job.tasks() if task.status & ACTIVE_STATUSES)
    )
