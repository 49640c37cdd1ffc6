"""Quota of ClusterQueues and Cohorts for people: what they have, use, borrow and lend."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from stowplan.batch.queue_models.kueue.admission_queue import AdmissionQueue
from stowplan.batch.queue_models.kueue.admission_workload import ADMITTED
from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission
from stowplan.batch.queue_models.kueue.quota.dominant_share import dominant_share
from stowplan.batch.queue_models.kueue.quota.quota_amounts import UNLIMITED, FlavorResource
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode

CLUSTER_QUEUE, COHORT = "ClusterQueue", "Cohort"


class QuotaReport(msgspec.Struct, frozen=True):
    """Quota in a flavor and resource; amounts as in manifests, limits "-" for none.

    used: by workloads, of a cohort by all below. borrowed: used beyond its own quota and what is
    below. used_by_others: unused quota of its own that is not available now. available: what can be
    used now, borrowed quota included.
    """

    flavor: str
    resource: str
    nominal: str
    borrowing_limit: str
    lending_limit: str
    used: str
    borrowed: str
    used_by_others: str
    available: str


class QueueReport(msgspec.Struct, frozen=True):
    """A ClusterQueue or Cohort, parents first. kind: which of them. cohort: above it, "" for none.
    depth: number of cohorts above. share: weighted share; -1 without an end. admitted, pending:
    workloads of a ClusterQueue. problem: why it admits nothing, "" if it does.
    """

    kind: str
    name: str
    cohort: str
    depth: int
    weight: float
    share: float
    quotas: list[QuotaReport]
    admitted: int = 0
    pending: int = 0
    problem: str = ""


def queue_reports(admission: KueueAdmission) -> list[QueueReport]:
    """All cohorts and queues, as a tree in order."""
    nodes = [*admission.tree.cohorts.values(), *admission.tree.queues.values()]
    found: list[QueueReport] = []
    for node in sorted(nodes, key=_order):
        if node.parent is None:
            found += _reports(node, admission, 0)
    return found


def _order(node: QuotaNode) -> tuple[bool, str]:
    return node.is_queue, node.name


def _reports(node: QuotaNode, admission: KueueAdmission, depth: int) -> Iterator[QueueReport]:
    share = dominant_share(node).value
    cohort = node.parent.name if node.parent is not None else ""
    found = QueueReport(
        CLUSTER_QUEUE if node.is_queue else COHORT,
        node.name,
        cohort,
        depth,
        node.weight,
        -1.0 if math.isinf(share) else round(share, 3),
        [_quota(node, pair) for pair in _pairs(node)],
    )
    if node.is_queue:
        queue = admission.queues[node.name]
        found = msgspec.structs.replace(
            found,
            admitted=sum(one.is_condition(ADMITTED) for one in queue.workloads.values()),
            pending=len(admission.pending[node.name]),
            problem=problem_of(queue),
        )
    yield found
    for child in sorted([*node.cohorts, *node.queues], key=_order):
        yield from _reports(child, admission, depth + 1)


def _pairs(node: QuotaNode) -> list[FlavorResource]:
    """Flavors and resources of a queue in the order of its spec; of a cohort, all below."""
    return list(node.quotas) if node.is_queue else sorted(node.subtree)


def _quota(node: QuotaNode, pair: FlavorResource) -> QuotaReport:
    flavor, name = pair
    quota, used, own = node.quota(pair), node.usage.get(pair, 0), node.subtree.get(pair, 0)
    available = node.available_now(pair)
    return QuotaReport(
        flavor,
        name,
        amount_text(name, quota.nominal),
        _limit_text(name, quota.borrowing_limit),
        _limit_text(name, quota.lending_limit),
        used=amount_text(name, used),
        borrowed=amount_text(name, max(0, used - own) if node.parent is not None else 0),
        used_by_others=amount_text(name, max(0, own - used - available)),
        available=amount_text(name, available),
    )


def _limit_text(name: str, limit: int | None) -> str:
    return "-" if limit is None else amount_text(name, limit)


def problem_of(queue: AdmissionQueue) -> str:
    """Why a queue is not active, "" if it is."""
    if queue.node.is_active:
        return ""
    if queue.spec.stop_policy not in (None, "None"):
        return "it is stopped"
    if queue.missing_flavors:
        return f"ResourceFlavor {', '.join(queue.missing_flavors)} not found"
    if queue.spec.cohort_name and queue.node.parent is None:
        return f"Cohort {queue.spec.cohort_name} is in a cycle"
    return "a topology or admission check is missing or not active"


def borrowers(node: QuotaNode, pair: FlavorResource) -> list[tuple[QuotaNode, int]]:
    """Other queues of the tree that use more than their own quota, and how much more."""
    if node.parent is None:
        return []
    every = _queues_below(node.root)
    found = [(one, one.usage.get(pair, 0) - one.subtree.get(pair, 0)) for one in every]
    return [(one, n) for one, n in found if n > 0 and one is not node]


def _queues_below(node: QuotaNode) -> list[QuotaNode]:
    found = list(node.queues)
    for cohort in node.cohorts:
        found += _queues_below(cohort)
    return found


def amount_text(resource: str, n: int) -> str:
    """An amount in base units as in manifests."""
    if n == UNLIMITED:
        return "unlimited"
    if resource != "cpu":
        return _bytes_text(n) if resource in ("memory", "ephemeral-storage") else str(n)
    return str(n // 1000) if n % 1000 == 0 else f"{n}m"


def _bytes_text(n: int) -> str:
    for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if n and n % 1024**power == 0:
            return f"{n // 1024**power}{suffix}"
    return str(n)
