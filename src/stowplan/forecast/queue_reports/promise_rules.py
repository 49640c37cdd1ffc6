"""What configured amounts of queues cannot hold: promises above limits, parents or the cluster.

Each rule is a function over the tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stowplan.forecast.queue_reports.audited_queue import (
    AMOUNT_MIN,
    ERROR,
    INFO,
    WARNING,
    AuditedQueue,
    AuditedTree,
    AuditFinding,
    amount_text,
    promised,
    word_of,
)


def parent_findings(tree: AuditedTree) -> Iterator[AuditFinding]:
    """Queues whose parent does not exist, or that are above themselves."""
    for queue in tree.queues.values():
        if not queue.parent:
            continue
        if queue.parent not in tree.queues:
            text = (
                f'parent queue "{queue.parent}" not found: it and the queues below it start no jobs'
            )
            yield AuditFinding(ERROR, queue.kind, queue.name, "ParentNotFound", text)
        elif queue.parent == queue.name:
            text = "it is its own parent: it and the queues below it start no jobs"
            yield AuditFinding(ERROR, queue.kind, queue.name, "ParentCycle", text)
        elif any(one.parent == queue.name for one in tree.above(queue.name)):
            text = (
                f'parent queue "{queue.parent}" is below it: the queues of this cycle start no jobs'
            )
            yield AuditFinding(ERROR, queue.kind, queue.name, "ParentCycle", text)


def limit_findings(tree: AuditedTree) -> Iterator[AuditFinding]:
    """Promises above a limit, of the queue or of one above it; limits of nothing."""
    for queue in tree.queues.values():
        for what, amounts in queue.promises.items():
            for resource, amount in amounts.items():
                yield from _over_limit(tree, queue, what, resource, amount)
        for resource, limit in queue.limit.items():
            if limit <= 0 and not queue.children:
                text = f"limit 0 {resource}: pods that ask for it do not start"
                yield AuditFinding(INFO, queue.kind, queue.name, "LimitOfNothing", text, resource)


def _over_limit(
    tree: AuditedTree, queue: AuditedQueue, what: str, resource: str, amount: float
) -> Iterator[AuditFinding]:
    if math.isinf(amount):
        return
    for holder in (queue, *tree.above(queue.name)):
        limit = holder.limit.get(resource, math.inf)
        if amount <= limit + AMOUNT_MIN:
            continue
        mine = f"{what} {amount_text(resource, amount)} {resource}"
        if holder is queue:
            whose = f"its limit {amount_text(resource, limit)}"
        else:
            whose = f"the limit {amount_text(resource, limit)} of queue {holder.name} above it"
        lost = amount_text(resource, amount - limit)
        text = f"{mine} is above {whose}: {lost} of it can never be used"
        yield AuditFinding(
            ERROR, queue.kind, queue.name, f"{word_of(what)}OverLimit", text, resource,
            () if holder is queue else (holder.name,),
        )  # fmt: skip
        return


def parent_promise_findings(tree: AuditedTree) -> Iterator[AuditFinding]:
    """Queues that together, or alone, are promised more than the one above them."""
    for parent in tree.queues.values():
        children = tree.below(parent.name)
        for what in parent.promises:
            for resource in _resources(children, what):
                has = parent.promises[what].get(resource, math.inf)
                if not math.isinf(has):
                    yield from _over_parent(parent, children, what, resource, has)


def _over_parent(
    parent: AuditedQueue, children: list[AuditedQueue], what: str, resource: str, has: float
) -> Iterator[AuditFinding]:
    has_text = f"{what} {amount_text(resource, has)} {resource}"
    for child in children:
        amount = promised(child, what, resource)
        if amount > has + AMOUNT_MIN:
            mine = amount_text(resource, amount)
            text = f"{what} {mine} {resource} is above that of queue {parent.name}, {has_text}"
            yield AuditFinding(
                WARNING, child.kind, child.name, f"{word_of(what)}OverParent", text, resource,
                (parent.name,),
            )  # fmt: skip
    finite = [one for one in children if not math.isinf(promised(one, what, resource))]
    total = sum(promised(one, what, resource) for one in finite)
    if len(finite) > 1 and total > has + AMOUNT_MIN:
        text = (
            f"{has_text}, and the {len(finite)} queues below it have "
            f"{amount_text(resource, total)} together: not all can be met at once"
        )
        yield AuditFinding(
            WARNING, parent.kind, parent.name, f"ChildrenOver{word_of(what)}", text, resource,
            tuple(one.name for one in finite if promised(one, what, resource)),
        )  # fmt: skip


def cluster_findings(tree: AuditedTree) -> Iterator[AuditFinding]:
    """Promises of what no node has, or above what the cluster has."""
    tops = [one for one in tree.queues.values() if one.parent not in tree.queues]
    for queue in tree.queues.values():
        for what, amounts in queue.promises.items():
            for resource, amount in amounts.items():
                yield from _over_cluster(tree, queue, what, resource, amount)
    for what in dict.fromkeys(what for one in tops for what in one.promises):
        for resource in _resources(tops, what):
            has = tree.total.get(resource, 0.0)
            finite = [one for one in tops if not math.isinf(promised(one, what, resource))]
            total = sum(promised(one, what, resource) for one in finite)
            if has > 0 and len(finite) > 1 and total > has + AMOUNT_MIN:
                text = (
                    f"{tree.tops} have {what}s of {amount_text(resource, total)} {resource} "
                    f"together, the cluster has {amount_text(resource, has)}: "
                    "not all can be met at once"
                )
                yield AuditFinding(
                    WARNING, "cluster", "", f"{word_of(what)}SumOverCluster", text, resource,
                    tuple(one.name for one in finite if promised(one, what, resource)),
                )  # fmt: skip


def _over_cluster(
    tree: AuditedTree, queue: AuditedQueue, what: str, resource: str, amount: float
) -> Iterator[AuditFinding]:
    has = tree.total.get(resource, 0.0)
    if math.isinf(amount) or amount <= has + AMOUNT_MIN:
        return
    mine = f"{what} {amount_text(resource, amount)} {resource}"
    if has <= 0:
        text, reason = f"{mine}, and no ready node has {resource}", f"{word_of(what)}OfNoNode"
    else:
        text = f"{mine} is above the {amount_text(resource, has)} of the cluster"
        reason = f"{word_of(what)}OverCluster"
    yield AuditFinding(ERROR, queue.kind, queue.name, reason, text, resource)


def _resources(queues: list[AuditedQueue], what: str) -> list[str]:
    return [*dict.fromkeys(name for one in queues for name in one.promises.get(what, {}))]


PROMISE_RULES = (parent_findings, limit_findings, parent_promise_findings, cluster_findings)
"""All of these, in the order in which they are reported."""
