"""Queues of KAI-Scheduler in a session: what they may use, what they use, and the checks and
orders that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from stowplan.batch.queue_models.kai.fair_share import (
    UNLIMITED,
    KaiQueueShares,
    KaiShare,
    divide,
)

Shares: TypeAlias = tuple[float, float, float]
"""cpu in milli-cpu, memory in bytes, cards."""
RESOURCES = ("cpu", "memory", "gpu")
RANGE = range(len(RESOURCES))
WITHOUT_SHARE_FACTOR = 1000


class KaiQueueTerms(msgspec.Struct, frozen=True):
    """What a queue's object says, per resource in the order of RESOURCES. reclaim_min_runtime,
    preempt_min_runtime: seconds, None if not set."""

    name: str
    parent: str
    priority: int
    created: float
    quota: Shares
    limit: Shares
    weight: Shares
    reclaim_min_runtime: float | None = None
    preempt_min_runtime: float | None = None


class KaiQueue:
    """A queue. allocated, fixed, request: amounts of pods with a place, of those the
    non-preemptible, and with those that wait."""

    def __init__(self, terms: KaiQueueTerms) -> None:
        self.terms = terms
        self.name = terms.name
        self.parent = terms.parent
        self.quota = terms.quota
        self.limit = terms.limit
        self.children: list[str] = []
        self._fair: list[float] = [0.0, 0.0, 0.0]
        self._may_use: Shares | None = None
        self.allocated: list[float] = [0.0, 0.0, 0.0]
        self.fixed: list[float] = [0.0, 0.0, 0.0]
        self.request: list[float] = [0.0, 0.0, 0.0]

    def clone(self) -> KaiQueue:
        """A copy with its own amounts."""
        copied = KaiQueue(self.terms)
        copied.children = self.children
        copied.fair = self.fair
        copied._may_use = self._may_use
        copied.allocated = list(self.allocated)
        copied.fixed = list(self.fixed)
        copied.request = self.request
        return copied

    @property
    def fair(self) -> list[float]:
        """Its fair share."""
        return self._fair

    @fair.setter
    def fair(self, fair: list[float]) -> None:
        self._fair, self._may_use = fair, None

    @property
    def allocatable(self) -> Shares:
        """What it may use before others may take it back."""
        if self._may_use is None:
            a, b, c = (self._allocatable(i) for i in RANGE)
            self._may_use = a, b, c
        return self._may_use

    def _allocatable(self, i: int) -> float:
        if self.quota[i] == UNLIMITED:
            return self.limit[i]
        most = max(self.quota[i], self.fair[i])
        return most if self.limit[i] == UNLIMITED else min(self.limit[i], most)

    def dominant_share(self, total: Sequence[float], uses: Sequence[float]) -> float:
        """The largest part that an amount is of what it may use."""
        share = 0.0
        for amount, may_use, all_ in zip(uses, self.allocatable, total, strict=True):
            if may_use == UNLIMITED:
                may_use = all_
            value = amount / may_use if may_use else amount * WITHOUT_SHARE_FACTOR
            if value > share:
                share = value
        return share

    def fits_quota(self, added: Sequence[float]) -> bool:
        """Whether it stays within its quota in every resource."""
        for used, more, quota in zip(self.allocated, added, self.quota, strict=True):
            if exceeds(used + more, quota):
                return False
        return True


def exceeds(amount: float, bound: float) -> bool:
    """Whether an amount is above another one; unlimited is above all others."""
    if amount == UNLIMITED:
        return bound != UNLIMITED
    return bound != UNLIMITED and amount > bound


def all_within(amounts: Sequence[float], bounds: Sequence[float]) -> bool:
    """Whether no amount is above its bound."""
    for amount, bound in zip(amounts, bounds, strict=True):
        if exceeds(amount, bound):
            break
    else:
        return True
    return False


class QueueTree:
    """The queues of a session, by name. total: what they divide. version: grows whenever what they
    use changes. left_out: queues that are none of them -> why."""

    def __init__(self, terms: Sequence[KaiQueueTerms], total: Sequence[float]) -> None:
        """Queues without their parents, or above themselves, are left out, with all below them."""
        self.total = tuple(total)
        self.version = 0
        known = {one.name: one for one in terms}
        problems = {one.name: _problem_above(one.name, known) for one in terms}
        self.left_out = {name: text for name, text in problems.items() if text}
        self.queues = {one.name: KaiQueue(one) for one in terms if not problems[one.name]}
        for queue in self.queues.values():
            if queue.parent:
                self.queues[queue.parent].children.append(queue.name)

    def up(self, name: str) -> Iterator[KaiQueue]:
        """A queue and those above it."""
        queue = self.queues.get(name)
        while queue is not None:
            yield queue
            queue = self.queues.get(queue.parent)

    def path(self, name: str) -> list[KaiQueue]:
        """Those above a queue from the top, and itself."""
        return [*self.up(name)][::-1]

    def allocate(self, name: str, shares: Shares, is_preemptible: bool, sign: int = 1) -> None:
        """Account for a pod that got a place, or with sign -1 lost one."""
        self.version += 1
        more = [sign * shares[0], sign * shares[1], sign * shares[2]]
        queue = self.queues.get(name)
        while queue is not None:
            for sums in (queue.allocated,) if is_preemptible else (queue.allocated, queue.fixed):
                sums[0] += more[0]
                sums[1] += more[1]
                sums[2] += more[2]
            queue = self.queues.get(queue.parent)

    def ask(self, name: str, shares: Shares) -> None:
        """Account for a pod's request."""
        for queue in self.up(name):
            for i in RANGE:
                queue.request[i] += shares[i]

    def divide(self, k: float, usage: Mapping[str, Shares] | None = None) -> None:
        """Set fair shares. k: see fair_share. usage: of queues over time, from 0 to 1."""
        for name, fair in self.fair_shares(k, usage).items():
            self.queues[name].fair = fair

    def fair_shares(
        self, k: float, usage: Mapping[str, Shares] | None = None
    ) -> dict[str, list[float]]:
        """Queue -> its fair share by resource, as `divide` sets them."""
        known = usage or {}
        divided = [_shares(queue, known.get(queue.name)) for queue in self.queues.values()]
        divide(dict(zip(RESOURCES, self.total, strict=True)), divided, k)
        return {one.name: [one.shares[name].fair for name in RESOURCES] for one in divided}

    def is_over(self, name: str, asked: Sequence[float], is_preemptible: bool) -> bool:
        """Whether a job would be above a limit, or not preemptible and above a quota."""
        for queue in self.up(name):
            if _is_above(queue.limit, queue.allocated, asked):
                return True
        return self.is_over_quota(name, asked, is_preemptible)

    def is_over_quota(self, name: str, asked: Sequence[float], is_preemptible: bool) -> bool:
        """Whether a job that is not preemptible would be above a quota."""
        return not is_preemptible and any(
            _is_above(queue.quota, queue.fixed, asked) for queue in self.up(name)
        )

    def snapshot(self) -> Mapping[str, KaiQueue]:
        """Copies of all queues."""
        return {name: queue.clone() for name, queue in self.queues.items()}


def _problem_above(name: str, known: Mapping[str, KaiQueueTerms]) -> str:
    """Why the way up from a queue does not end at one without a parent, "" if it does."""
    seen: set[str] = set()
    at = name
    while at:
        if at in seen:
            return f"the parents of queue {name} lead to queue {at} again"
        if at not in known:
            return f'queues "{at}" not found, to which the parents of queue {name} lead'
        seen.add(at)
        at = known[at].parent
    return ""


def _is_above(bounds: Sequence[float], used: Sequence[float], asked: Sequence[float]) -> bool:
    for bound, now, more in zip(bounds, used, asked, strict=True):
        if bound != UNLIMITED and more != 0 and bound < now + more:
            return True
    return False


def _shares(queue: KaiQueue, usage: Shares | None) -> KaiQueueShares:
    terms, used = queue.terms, usage or (0.0, 0.0, 0.0)
    shares = {
        name: KaiShare(queue.quota[i], queue.limit[i], terms.weight[i], queue.request[i], used[i])
        for i, name in enumerate(RESOURCES)
    }
    return KaiQueueShares(queue.name, queue.parent, terms.priority, terms.created, shares)


QueueKey: TypeAlias = tuple[bool, bool, int, bool, float, float]
"""Of two queues, the one with the smaller key comes first."""


def comes_first(left: KaiQueue, right: KaiQueue, left_key: QueueKey, right_key: QueueKey) -> bool:
    """Whether a queue comes before another one. keys: see `queue_key`."""
    if left_key != right_key:
        return left_key < right_key
    mine, other = left.allocatable, right.allocatable
    is_less, is_more = all_within(mine, other), all_within(other, mine)
    if is_less != is_more:
        return is_less
    return left.terms.created < right.terms.created


def queue_key(
    queue: KaiQueue, job: Shares, gone: Sequence[Shares], total: Sequence[float]
) -> QueueKey:
    """The order of a queue. job: what its next job asks for. gone: what each of its victims has."""
    may_use, has, fair = queue.allocatable, queue.allocated, queue.fair
    wanted = uses = [has[0] + job[0], has[1] + job[1], has[2] + job[2]]
    # One after the other, so that sums of parts of cards round as in the original.
    for victim in gone:
        uses = [uses[0] - victim[0], uses[1] - victim[1], uses[2] - victim[2]]
    return (
        fair[0] < has[0] and fair[1] < has[1] and fair[2] < has[2],
        not all_within(wanted, queue.quota),
        -queue.terms.priority,
        0 in may_use and any(may_use[i] == 0 and wanted[i] > 0 for i in RANGE),
        queue.dominant_share(total, uses),
        queue.dominant_share(total, has),
    )
