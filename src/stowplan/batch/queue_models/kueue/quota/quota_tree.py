"""The quota tree: ClusterQueues under nested Cohorts, with what each may use, lend and borrow.

Per node and (flavor, resource): nominal quota N, borrowing limit B, lending limit L; a limit that
is absent is none. Subtree quota S, guaranteed quota G (never visible above the node), usage U and
available quota are defined at their methods. A queue that is not active stays in the tree with its
quota and usage, but is not among `active_queues`.

Source: Kueue, pkg/cache/scheduler: resource_node.go, fair_sharing.go; KEP-79, KEP-1714.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stowplan.batch.queue_models.kueue.kueue_objects import KueueFairSharing, KueueResourceGroup
from stowplan.batch.queue_models.kueue.quota.quota_amounts import (
    UNLIMITED,
    Amounts,
    FlavorResource,
    minus,
    plus,
    quota_amount,
)
from stowplan.objects.quantity import nanos


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of a node in one (flavor, resource), in base units; a limit of None is none."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


NO_QUOTA = Quota()


def quotas_of(groups: Iterable[KueueResourceGroup]) -> dict[FlavorResource, Quota]:
    """Quotas as they are written."""
    found = {}
    for group in groups:
        for flavor in group.flavors:
            for one in flavor.resources:
                limits = [
                    None if limit is None else quota_amount(one.name, limit)
                    for limit in (one.borrowing_limit, one.lending_limit)
                ]
                nominal = quota_amount(one.name, one.nominal_quota)
                found[flavor.name, one.name] = Quota(nominal, limits[0], limits[1])
    return found


def weight_of(fair_sharing: KueueFairSharing | None) -> float:
    """Weight for fair shares; 1 if none is given."""
    if fair_sharing is None or fair_sharing.weight is None:
        return 1.0
    return nanos(fair_sharing.weight) / 1e9


@dataclass(eq=False, slots=True)
class QuotaNode:
    """A ClusterQueue or a Cohort. subtree, usage: (flavor, resource) -> base units."""

    name: str
    is_queue: bool
    quotas: dict[FlavorResource, Quota] = field(default_factory=dict)
    weight: float = 1.0
    parent: QuotaNode | None = None
    cohorts: list[QuotaNode] = field(default_factory=list)
    queues: list[QuotaNode] = field(default_factory=list)
    is_active: bool = True
    subtree: dict[FlavorResource, int] = field(default_factory=dict)
    usage: dict[FlavorResource, int] = field(default_factory=dict)

    def quota(self, pair: FlavorResource) -> Quota:
        """The quota of this node itself."""
        return self.quotas.get(pair, NO_QUOTA)

    @property
    def active_queues(self) -> list[QuotaNode]:
        """Queues directly below that take part in cycles."""
        return [queue for queue in self.queues if queue.is_active]

    @property
    def ancestors(self) -> Iterator[QuotaNode]:
        """Cohorts above, the nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    @property
    def root(self) -> QuotaNode:
        """The top of the tree; the node itself without a parent."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def subtree_queues(self) -> Iterator[QuotaNode]:
        """Active queues below a cohort."""
        yield from self.active_queues
        for cohort in self.cohorts:
            yield from cohort.subtree_queues()

    def guaranteed(self, pair: FlavorResource) -> int:
        """G: quota that is not lent."""
        limit = self.quota(pair).lending_limit
        return 0 if limit is None else max(0, minus(self.subtree.get(pair, 0), limit))

    def local_available(self, pair: FlavorResource) -> int:
        """What is free of the guaranteed quota."""
        return max(0, minus(self.guaranteed(pair), self.usage.get(pair, 0)))

    def available(self, pair: FlavorResource) -> int:
        """What can be used now, of own quota and of others'; negative when the tree is overused."""
        used, quota = self.usage.get(pair, 0), self.subtree.get(pair, 0)
        if self.parent is None:
            return minus(quota, used)
        from_parent = self.parent.available(pair)
        limit = self.quota(pair).borrowing_limit
        if limit is not None:
            guaranteed = self.guaranteed(pair)
            visible = minus(minus(quota, guaranteed), max(0, minus(used, guaranteed)))
            from_parent = min(from_parent, plus(visible, limit))
        return plus(self.local_available(pair), from_parent)

    def available_now(self, pair: FlavorResource) -> int:
        """`available`, at least 0."""
        return max(0, self.available(pair))

    def potential(self, pair: FlavorResource) -> int:
        """What could be used if nothing were in use."""
        quota = self.subtree.get(pair, 0)
        if self.parent is None:
            return quota
        found = plus(self.guaranteed(pair), self.parent.potential(pair))
        limit = self.quota(pair).borrowing_limit
        return found if limit is None else min(plus(quota, limit), found)

    def is_borrowing(self, pair: FlavorResource, more: int = 0) -> bool:
        """Whether it uses more than its subtree quota, with `more` added."""
        return self.subtree.get(pair, 0) < plus(self.usage.get(pair, 0), more)

    def is_within_quota(self, pairs: Iterable[FlavorResource]) -> bool:
        """Whether it borrows none of the pairs."""
        return not any(self.is_borrowing(pair) for pair in pairs)

    def fit_in_quota(self, requests: Amounts) -> tuple[bool, dict[FlavorResource, int]]:
        """Whether requests fit in the subtree quota, and what of them the parent must give."""
        fits = not any(self.is_borrowing(pair, n) for pair, n in requests.items())
        rest = {pair: max(0, minus(n, self.local_available(pair))) for pair, n in requests.items()}
        return fits, rest

    def add_usage(self, amounts: Amounts) -> None:
        """Use amounts here; what is beyond the free guaranteed quota is used above too."""
        for pair, n in amounts.items():
            node: QuotaNode | None = self
            while node is not None:
                local = node.local_available(pair)
                node.usage[pair] = plus(node.usage.get(pair, 0), n)
                if n <= local:
                    break
                n = minus(n, local)
                node = node.parent

    def remove_usage(self, amounts: Amounts) -> None:
        """Undo `add_usage`."""
        for pair, n in amounts.items():
            node: QuotaNode | None = self
            while node is not None:
                above = minus(node.usage.get(pair, 0), node.guaranteed(pair))
                node.usage[pair] = minus(node.usage.get(pair, 0), n)
                if above <= 0:
                    break
                n = min(n, above)
                node = node.parent

    @property
    def height(self) -> int:
        """Longest way down from a cohort: 1 if it has active queues only."""
        own = 1 if self.cohorts or self.active_queues else 0
        return max([own, *(cohort.height + 1 for cohort in self.cohorts)])


def borrowing_height(queue: QuotaNode, pair: FlavorResource, n: int) -> tuple[int, bool]:
    """Height of the lowest cohort that has the quota for a request, and whether something is
    above it: 0 if the queue need not borrow, the root's if none has."""
    if queue.parent is None or not queue.is_borrowing(pair, n):
        return 0, queue.parent is not None
    rest = minus(n, queue.local_available(pair))
    for cohort in queue.ancestors:
        if not cohort.is_borrowing(pair, rest):
            return cohort.height, cohort.parent is not None
        rest = minus(rest, cohort.local_available(pair))
    return queue.root.height, False


class QuotaTree:
    """All queues and cohorts."""

    def __init__(self, queues: dict[str, QuotaNode], cohorts: dict[str, QuotaNode]) -> None:
        """queues, cohorts: by name; cohorts in a cycle are left out."""
        self.queues = queues
        self.cohorts = cohorts
        for node in [*queues.values(), *cohorts.values()]:
            if node.parent is None:
                _sum_subtree(node)

    def saved_usage(self, roots: Iterable[QuotaNode]) -> dict[QuotaNode, dict[FlavorResource, int]]:
        """Usage of all nodes below these, to return to."""
        found: dict[QuotaNode, dict[FlavorResource, int]] = {}
        left = list(dict.fromkeys(roots))
        while left:
            node = left.pop()
            found[node] = dict(node.usage)
            left += [*node.cohorts, *node.queues]
        return found

    def restore(self, saved: dict[QuotaNode, dict[FlavorResource, int]]) -> None:
        """Return to usage saved before."""
        for node, usage in saved.items():
            node.usage = usage


def _sum_subtree(node: QuotaNode) -> None:
    """Compute the subtree quota: N, and what children do not keep for themselves."""
    node.subtree = {pair: quota.nominal for pair, quota in node.quotas.items()}
    for child in [*node.cohorts, *node.queues]:
        _sum_subtree(child)
        for pair, quota in child.subtree.items():
            visible = minus(quota, child.guaranteed(pair))
            node.subtree[pair] = plus(node.subtree.get(pair, 0), visible)


__all__ = ["NO_QUOTA", "UNLIMITED", "Quota", "QuotaNode", "QuotaTree", "borrowing_height"]
