"""Loans between queues: what a queue has beyond its part, and whose it is.

It is borrowed from queues that use less than their part; several lenders lend in proportion to what
they leave unused. A lender wants back what its pending pods could use of it and do not find idle:
reclaim acts on that.

In a tree of queues, loans are between queues with the same parent: what a queue above others
borrows, they have together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stowplan.batch.queue_models.queue_model import ModelQueue, ModelReport

MODEL_LOAN_MIN = 0.001
"""Smaller loans (cores, bytes, units) of queue models are rounding errors."""


class Loan(msgspec.Struct, frozen=True, rename="camel"):
    """Resources of `lender` that `borrower` uses. wanted_back: the part that lender's pods need."""

    borrower: str
    lender: str
    resource: str
    amount: float
    wanted_back: float


class PartAndUse(NamedTuple):
    """A queue's amounts of a resource. part: what it has without borrowing."""

    part: float
    allocated: float
    pending: float

    @property
    def left(self) -> float:
        """What it leaves of its part; below 0 where it borrows."""
        return self.part - self.allocated


def loans_between(
    uses: Mapping[str, PartAndUse], resource: str, idle: float, loan_min: float
) -> Iterator[Loan]:
    """Loans of a resource between queues. idle: on all nodes. loan_min: smaller ones are left
    out."""
    lenders = {name: use.left for name, use in uses.items() if use.left > 0}
    offered = sum(lenders.values())
    borrowed = -sum(use.left for use in uses.values() if use.left < 0)
    for borrower in sorted(name for name, use in uses.items() if use.left < -loan_min):
        over = -uses[borrower].left
        for lender in sorted(name for name, left in lenders.items() if left > loan_min):
            part_of = lenders[lender] / offered
            amount = min(1.0, over / offered) * lenders[lender]
            # Its share of the idle amount is available without reclaim.
            waits = uses[lender].pending - idle * part_of
            back = min(amount, max(waits, 0.0) * over / borrowed)
            yield Loan(borrower, lender, resource, amount, back)


def parts_by_weight(queues: Sequence[ModelQueue]) -> dict[str, float]:
    """Queue -> its part of all resources: by weight among those with its parent, of the parent's
    part."""
    known = {one.name: one for one in queues}
    sums: dict[str, float] = {}
    for one in queues:
        above = one.parent if one.parent in known else ""
        sums[above] = sums.get(above, 0.0) + max(one.weight, 0)
    parts: dict[str, float] = {}
    for one in queues:
        part, at, seen = 1.0, one, {one.name}
        while True:
            above = at.parent if at.parent in known else ""
            part *= max(at.weight, 0) / (sums[above] or 1.0)
            if not above or above in seen:
                break
            seen.add(above)
            at = known[above]
        parts[one.name] = part
    return parts


def queue_model_loans(report: ModelReport, total: Mapping[str, float]) -> Iterator[Loan]:
    """Loans between the queues of a queue model. total: the resources that count."""
    siblings: dict[str, list[ModelQueue]] = {}
    for one in report.queues:
        siblings.setdefault(one.parent, []).append(one)
    keeps = {one.name for one in report.queues if not _gives_back(one, siblings)}
    part_of = parts_by_weight(report.queues)
    for queues in siblings.values():
        for resource, whole in total.items():
            uses = {}
            for one in queues:
                by_weight = whole * part_of[one.name]
                uses[one.name] = PartAndUse(
                    _part(one, resource, whole, by_weight),
                    one.allocated.get(resource, 0.0),
                    one.pending.get(resource, 0.0),
                )
            idle = report.idle.get(resource, 0.0)
            for loan in loans_between(uses, resource, idle, MODEL_LOAN_MIN):
                wanted = 0.0 if loan.borrower in keeps else loan.wanted_back
                amount, back = round(loan.amount, 3), round(wanted, 3)
                yield msgspec.structs.replace(loan, amount=amount, wanted_back=back)


def _gives_back(queue: ModelQueue, below: Mapping[str, list[ModelQueue]]) -> bool:
    """True if what a queue borrows, or a queue without others below it, may be reclaimed."""
    due, seen = [queue], {queue.name}
    while due:
        one = due.pop()
        # Parents may be a cycle, which is reported elsewhere.
        children = [child for child in below.get(one.name, ()) if child.name not in seen]
        if not children and one.gives_back:
            return True
        seen.update(child.name for child in children)
        due += children
    return False


def _part(queue: ModelQueue, resource: str, whole: float, by_weight: float) -> float:
    """What a queue has of a resource without borrowing."""
    if queue.owned is not None:
        return queue.owned.get(resource, whole)
    if queue.deserved is not None:
        return queue.deserved.get(resource, 0.0)
    return by_weight
