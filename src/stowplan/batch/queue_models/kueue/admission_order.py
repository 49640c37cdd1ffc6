"""The order in which the nominated workloads of a cycle are processed.

Source: Kueue, pkg/scheduler: scheduler.go, fair_sharing_iterator.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stowplan.batch.queue_models.kueue.admission_queue import AdmissionQueue, AdmissionSnapshot
from stowplan.batch.queue_models.kueue.admission_workload import AdmissionWorkload
from stowplan.batch.queue_models.kueue.flavor_assignment import FlavorAssignment
from stowplan.batch.queue_models.kueue.preemption.preemption_targets import PreemptionTarget
from stowplan.batch.queue_models.kueue.quota.dominant_share import DominantShare, dominant_share
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode


class AdmissionEntry:
    """A head with its assignment.

    requeue: why it goes back to its queue; reason: of its condition QuotaReserved; is_nominated: it
    got so far that it is tried again at once.
    """

    def __init__(self, workload: AdmissionWorkload, queue: AdmissionQueue) -> None:
        self.workload = workload
        self.queue = queue
        self.assignment = FlavorAssignment()
        self.targets: list[PreemptionTarget] = []
        self.requeue = ""
        self.reason = ""
        self.is_skipped = False
        self.is_admitted = False
        self.is_evicted = False


def in_order(
    entries: Sequence[AdmissionEntry], snapshot: AdmissionSnapshot
) -> Iterator[AdmissionEntry]:
    """Entries in order; under fair sharing each is chosen after the one before was processed."""
    if not snapshot.options.is_fair:
        yield from sorted(entries, key=_classical_key)
        return
    left = {one.queue.node: one for one in entries}
    while left:
        node = next(iter(left))
        chosen = left[node]
        if node.parent is not None:
            chosen = _tournament(node.root, left, snapshot) or chosen
        del left[chosen.queue.node]
        yield chosen


def _classical_key(one: AdmissionEntry) -> tuple[bool, int, int, float]:
    workload = one.workload
    return (
        not workload.holds_quota, one.assignment.height, -workload.priority,
        workload.queued_since,
    )  # fmt: skip


_Shares = dict[tuple[str, QuotaNode], DominantShare]


def _tournament(
    root: QuotaNode, left: dict[QuotaNode, AdmissionEntry], snapshot: AdmissionSnapshot
) -> AdmissionEntry | None:
    """The winner of a tree: shares are taken with the request of each entry added."""
    shares: _Shares = {}
    for node in root.subtree_queues():
        if node not in left:
            continue
        entry = left[node]
        usage = entry.assignment.usage(holds_quota=entry.workload.holds_quota)
        snapshot.add_usage(entry.queue, usage)
        share = dominant_share(node)
        for cohort in node.ancestors:
            shares[entry.workload.key, cohort] = share
            share = dominant_share(cohort)
        snapshot.remove_usage(entry.queue, usage)
    return _winner(root, left, shares)


def _winner(
    cohort: QuotaNode, left: dict[QuotaNode, AdmissionEntry], shares: _Shares
) -> AdmissionEntry | None:
    entries = [_winner(child, left, shares) for child in cohort.cohorts]
    entries += [left.get(queue) for queue in cohort.active_queues]
    found = [one for one in entries if one is not None]
    return min(found, key=lambda one: _fair_key(one, cohort, shares), default=None)


def _fair_key(
    one: AdmissionEntry, cohort: QuotaNode, shares: _Shares
) -> tuple[bool, tuple[int, float], int, float]:
    share = shares[one.workload.key, cohort]
    quota = one.assignment.quota if not one.workload.holds_quota else {}
    is_borrowing = any(quota.get(pair, 0) > 0 for pair in share.borrowed)
    return is_borrowing, share.rank, -one.workload.priority, one.workload.queued_since
