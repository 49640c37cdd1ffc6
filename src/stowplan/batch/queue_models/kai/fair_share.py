"""Fair shares of queues as KAI-Scheduler divides them: per resource, one level of the tree at a
time.

A queue first gets its quota as far as it asks for it. What is left goes to priorities from the
highest down, among queues of one priority by over-quota weight less what they used lately, and in
the end the parts below one unit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

UNLIMITED = -1.0
"""A quota or limit without a bound."""
DEFAULT_K = 1.0
"""How much usage over time counts; 0: not at all."""


class KaiShare:
    """One resource of one queue, float64, in the unit of the resource: cards, milli-cpu, bytes.

    quota, limit: may be UNLIMITED. weight: of what is left beyond quotas; 0 gets none of it.
    request: what runs and what waits. usage: over time, 0 to 1, part of the cluster.
    """

    __slots__ = ("fair", "limit", "quota", "request", "usage", "weight")

    def __init__(
        self, quota: float, limit: float, weight: float, request: float, usage: float = 0.0
    ) -> None:
        self.quota = quota
        self.limit = limit
        self.weight = weight
        self.request = request
        self.usage = usage
        self.fair = 0.0

    @property
    def requestable(self) -> float:
        """The request up to the limit."""
        return self.request if self.limit == UNLIMITED else min(self.limit, self.request)

    @property
    def wants_more(self) -> bool:
        """The fair share is below the request and below the limit."""
        is_at_limit = self.limit != UNLIMITED and self.limit <= self.fair
        return self.request > self.fair and not is_at_limit


class KaiQueueShares:
    """A queue of the tree. parent: "" at the top. created: any clock, older first. shares: by
    resource, the same resources in every queue."""

    def __init__(
        self,
        name: str,
        parent: str,
        priority: int,
        created: float,
        shares: Mapping[str, KaiShare],
    ) -> None:
        self.name = name
        self.parent = parent
        self.priority = priority
        self.created = created
        self.shares = shares


def divide(
    total: Mapping[str, float], queues: Iterable[KaiQueueShares], k: float = DEFAULT_K
) -> None:
    """Set `fair` of all queues. total: what the cluster has, by resource; 0 if absent. k: how much
    usage counts, below 0 is 0.

    Raises ValueError for queues that no top queue leads to: an unknown parent, or a cycle.
    """
    children: dict[str, list[KaiQueueShares]] = defaultdict(list)
    for queue in queues:
        children[queue.parent].append(queue)
    levels = [(total, children.pop("", []))]
    while levels:
        amounts, level = levels.pop()
        resources: list[str] = list(level[0].shares) if level else []
        for resource in resources:
            _divide_level(amounts.get(resource, 0.0), level, resource, max(k, 0.0))
        for queue in level:
            fair = {resource: queue.shares[resource].fair for resource in resources}
            levels.append((fair, children.pop(queue.name, [])))
    if children:
        parent, (queue, *_) = next(iter(children.items()))
        raise ValueError(f"queue {queue.name}: parent: got {parent!r}, which no top queue leads to")


def _divide_level(total: float, level: Sequence[KaiQueueShares], resource: str, k: float) -> None:
    """Divide an amount among siblings: quotas, then by priority, then the parts below one unit."""
    if len(level) == 1:
        _divide_alone(total, level[0].shares[resource], k)
        return
    left = total
    by_priority: dict[int, list[KaiQueueShares]] = defaultdict(list)
    for queue in level:
        share = queue.shares[resource]
        quota = total if share.quota == UNLIMITED else share.quota
        share.fair = min(quota, share.requestable)
        left -= share.fair
        by_priority[queue.priority].append(queue)
    # Quotas are given even where together they exceed the total.
    if left <= 0:
        return
    rests: list[list[tuple[float, float, str, KaiShare]]] = []
    for priority in sorted(by_priority, reverse=True):
        if left <= 0:
            return
        same = by_priority[priority]
        shares = [queue.shares[resource] for queue in same]
        divided = _divide_to_one if len(same) == 1 else _divide_by_weight
        left, rest_of = divided(left, shares, k)
        if rest_of:
            rests.append([
                (-rest_of[i], queue.created, queue.name, shares[i])
                for i, queue in enumerate(same)
                if i in rest_of
            ])  # fmt: skip
    for rest in rests:
        left = _divide_rests(left, rest)


def _divide_alone(total: float, share: KaiShare, k: float) -> None:
    """The same for a queue without siblings."""
    share.fair = min(total if share.quota == UNLIMITED else share.quota, share.requestable)
    left, rests = total - share.fair, dict[int, float]()
    if left > 0:
        left, rests = _divide_to_one(left, (share,), k)
    if rests and left > 0:
        share.fair += min(1.0, left)


def _divide_to_one(
    left: float, shares: Sequence[KaiShare], k: float
) -> tuple[float, dict[int, float]]:
    """The same as `_divide_by_weight` for the only queue of a priority: its part is all that is
    left, unless its weight or its usage leaves it none."""
    share, rests = shares[0], dict[int, float]()
    if not _has_part(share, k):
        return left, rests
    while left > 0 and share.wants_more:
        part, wanted = left, share.requestable - share.fair
        if wanted <= part:
            given = wanted
            rests.clear()
        else:
            given = float(math.floor(part))
            if part > given:
                rests[0] = part - given
        share.fair += given
        left -= given
        if not wanted < part:
            break
    return left, rests


def _has_part(share: KaiShare, k: float) -> bool:
    """Whether a queue alone gets a part of what is left."""
    if share.weight == 0 or not math.isfinite(share.weight):
        return False
    return 1.0 + k * (1.0 - share.usage) > 0


def _divide_by_weight(
    left: float, shares: Sequence[KaiShare], k: float
) -> tuple[float, dict[int, float]]:
    """Rounds among queues of one priority until none gets all that it wants; what is left, and the
    part below one unit that each would have got, by its index."""
    rests: dict[int, float] = {}
    unmet = list(range(len(shares)))
    while left > 0:
        # As `wants_more` has it, and below `requestable`: this runs for every queue in each round.
        unmet = [
            i
            for i in unmet
            if (share := shares[i]).request > share.fair
            and (share.limit == UNLIMITED or share.limit > share.fair)
        ]
        weights = _weights([shares[i] for i in unmet], k)
        total_weight = math.fsum(weights)
        if total_weight == 0:
            break
        amount, was_satisfied = left, False
        for i, weight in zip(unmet, weights, strict=True):
            share = shares[i]
            if share.weight == 0 or left == 0:
                continue
            limit, asked = share.limit, share.request
            wanted = (asked if limit == UNLIMITED or asked < limit else limit) - share.fair
            part = amount * (weight / total_weight)
            if wanted <= part:
                given = wanted
                rests.pop(i, None)
            else:
                given = float(math.floor(part))
                if part > given:
                    rests[i] = part - given
            share.fair += given
            left -= given
            was_satisfied |= wanted < part
        if not was_satisfied:
            break
    return left, rests


def _weights(unmet: Sequence[KaiShare], k: float) -> list[float]:
    """Weights of queues that want more: their part of all weights, more of it for those that used
    less than that."""
    total = math.fsum(share.weight for share in unmet)
    if total == 0:
        return [0.0] * len(unmet)
    parts = [share.weight / total for share in unmet]
    return [
        max(0.0, part + k * (part - share.usage)) for part, share in zip(parts, unmet, strict=True)
    ]


def _divide_rests(left: float, rests: list[tuple[float, float, str, KaiShare]]) -> float:
    """Give one unit each, largest part first, then oldest queue, then name; what is left."""
    for _, _, _, share in sorted(rests, key=lambda rest: rest[:3]):
        if left <= 0:
            break
        given = min(1.0, left)
        share.fair += given
        left -= given
    return left
