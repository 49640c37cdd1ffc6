"""Dominant resource shares of queues and cohorts, by which fair sharing orders and preempts.

Source: Kueue, pkg/cache/scheduler/fair_sharing.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stowplan.batch.queue_models.kueue.quota.quota_amounts import FlavorResource, minus, plus
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode


@dataclass(frozen=True, slots=True)
class DominantShare:
    """What a node borrows, relative to what its parent can lend.

    ratio: thousandths, of the resource of which it borrows most. borrowed: the pairs of which it
    borrows.
    """

    ratio: float = 0.0
    weight: float = 1.0
    borrowed: tuple[FlavorResource, ...] = ()

    @property
    def is_borrowing(self) -> bool:
        """Whether it borrows anything, of whatever quota."""
        return bool(self.borrowed)

    @property
    def value(self) -> float:
        """Ratio per weight; infinite for weight 0 while it borrows."""
        if self.ratio == 0:
            return 0.0
        return math.inf if self.weight == 0 else self.ratio / self.weight

    @property
    def rank(self) -> tuple[int, float]:
        """By what shares are compared: two infinite ones by their ratio."""
        if self.weight == 0 and self.ratio != 0:
            return 1, self.ratio
        return 0, self.value


def dominant_share(node: QuotaNode) -> DominantShare:
    """The share of a node; 0 for a root."""
    if node.parent is None:
        return DominantShare(weight=node.weight)
    borrowed: dict[str, int] = {}
    pairs = []
    for pair, quota in node.subtree.items():
        beyond = minus(node.usage.get(pair, 0), quota)
        if beyond > 0:
            borrowed[pair[1]] = plus(borrowed.get(pair[1], 0), beyond)
            pairs.append(pair)
    if not pairs:
        return DominantShare(weight=node.weight)
    lendable: dict[str, int] = {}
    for pair in node.root.subtree:
        if pair[1] in borrowed:
            lendable[pair[1]] = plus(lendable.get(pair[1], 0), node.parent.potential(pair))
    ratios = [
        float(n) * 1000.0 / float(lendable[name])
        for name, n in borrowed.items()
        if lendable.get(name, 0) > 0
    ]
    return DominantShare(max(ratios, default=0.0), node.weight, tuple(pairs))
