"""What queues use of what they are promised: who starves while others borrow, what lies idle, and
what is above a limit or a quota.

Asked for in KAI-Scheduler's issue 2057; what a changed quota leaves behind, in 1783.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stowplan.forecast.queue_reports.audited_queue import (
    AMOUNT_MIN,
    INFO,
    WARNING,
    AuditedQueue,
    AuditedTree,
    AuditFinding,
    amount_text,
    promised,
    word_of,
)


def starved_findings(tree: AuditedTree) -> Iterator[AuditFinding]:
    """Queues that have and ask for no more than they are promised and do not get it, while others
    below the same parent have more than theirs."""
    for queue in tree.queues.values():
        for resource in queue.promises.get(queue.main, {}):
            yield from _starved(tree, queue, resource)


def _starved(tree: AuditedTree, queue: AuditedQueue, resource: str) -> Iterator[AuditFinding]:
    quota, has = promised(queue, queue.main, resource), queue.allocated.get(resource, 0.0)
    lacks = min(queue.pending.get(resource, 0.0), quota - has)
    if math.isinf(quota) or lacks <= AMOUNT_MIN:
        return
    borrowers = {
        one.name: over
        for one in tree.below(queue.parent)
        if one.name != queue.name and (over := _over(one, resource)) > AMOUNT_MIN
    }
    if not borrowers:
        return
    by_amount = sorted(borrowers.items(), key=lambda pair: (-pair[1], pair[0]))
    others = ", ".join(
        f"{name} has {amount_text(resource, over)} beyond its {tree.queues[name].main}"
        for name, over in by_amount
    )
    text = (
        f"has {amount_text(resource, has)} of its {queue.main} {amount_text(resource, quota)} "
        f"{resource} and asks for {amount_text(resource, lacks)} more of it, while {others}"
    )
    names = tuple(name for name, _ in by_amount)
    yield AuditFinding(WARNING, queue.kind, queue.name, "Starved", text, resource, names)


def _over(queue: AuditedQueue, resource: str) -> float:
    """What a queue has beyond what it is promised, 0 where it does not say what that is."""
    if resource not in queue.promises.get(queue.main, {}):
        return 0.0
    return queue.allocated.get(resource, 0.0) - promised(queue, queue.main, resource)


def idle_findings(tree: AuditedTree) -> Iterator[AuditFinding]:
    """Leaf queues that neither use nor ask for all that they are promised."""
    for queue in tree.queues.values():
        # Those without amounts are in no session.
        if queue.children or not queue.main or not queue.allocated:
            continue
        for resource, quota in queue.promises.get(queue.main, {}).items():
            has, asked = queue.allocated.get(resource, 0.0), queue.pending.get(resource, 0.0)
            idle = quota - has - asked
            if idle <= AMOUNT_MIN or quota > tree.total.get(resource, 0.0) + AMOUNT_MIN:
                continue
            asks = f"asks for {amount_text(resource, asked)} more" if asked else "asks for no more"
            text = (
                f"has {amount_text(resource, has)} of its {queue.main} "
                f"{amount_text(resource, quota)} {resource} and {asks}: "
                f"{amount_text(resource, idle)} can be lent"
            )
            yield AuditFinding(
                INFO, queue.kind, queue.name, f"Idle{word_of(queue.main)}", text, resource
            )


def excess_findings(tree: AuditedTree) -> Iterator[AuditFinding]:
    """Queues above their limit, or with more than their quota for jobs that are not
    preemptible."""
    for queue in tree.queues.values():
        for resource, limit in queue.limit.items():
            has = queue.allocated.get(resource, 0.0)
            if has > limit + AMOUNT_MIN:
                text = (
                    f"has {amount_text(resource, has)} {resource}, above its limit "
                    f"{amount_text(resource, limit)}: no more starts, and nothing is evicted for it"
                )
                yield AuditFinding(WARNING, queue.kind, queue.name, "AboveLimit", text, resource)
        for resource, has in queue.fixed.items():
            quota = promised(queue, queue.main, resource)
            if has > quota + AMOUNT_MIN:
                text = (
                    f"jobs that may not be preempted have {amount_text(resource, has)} {resource}, "
                    f"above its {queue.main} {amount_text(resource, quota)}: it cannot be reclaimed"
                )
                yield AuditFinding(
                    WARNING, queue.kind, queue.name, "FixedAboveQuota", text, resource
                )


USE_RULES = (starved_findings, idle_findings, excess_findings)
"""All of these, in the order in which they are reported."""
