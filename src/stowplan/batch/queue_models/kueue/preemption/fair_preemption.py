"""Preemption with fair sharing: from the queue with the highest share, as strategies allow.

Source: Kueue, pkg/scheduler/preemption: preemption.go, fairsharing/; KEP-1714, KEP-1337.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from stowplan.batch.queue_models.kueue.admission_queue import AdmissionQueue
from stowplan.batch.queue_models.kueue.admission_workload import AdmissionWorkload
from stowplan.batch.queue_models.kueue.kueue_objects import NEVER
from stowplan.batch.queue_models.kueue.kueue_options import FINAL_SHARE
from stowplan.batch.queue_models.kueue.preemption.preemption_targets import (
    FAIR,
    IN_QUEUE,
    RECLAIM,
    PreemptionTarget,
    PreemptionTask,
    candidates_of,
    give_back,
    in_victim_order,
    quota_usage,
    restore_targets,
    victim_key,
)
from stowplan.batch.queue_models.kueue.quota.dominant_share import DominantShare, dominant_share
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode

Rank = tuple[int, float]
_NO_SHARE: Rank = (0, -1.0)


def fair_targets(task: PreemptionTask) -> list[PreemptionTarget]:
    """Targets under fair sharing; none if preemption does not help."""
    candidates = in_victim_order(task, _candidates(task))
    if not candidates:
        return []
    usage = quota_usage(task.usage)
    task.snapshot.add_usage(task.queue, usage)
    strategies = task.snapshot.options.strategies
    fits, targets, left = _first_round(task, candidates, strategies[0])
    if not fits and len(strategies) > 1:
        fits = _second_round(task, left, targets)
    task.snapshot.remove_usage(task.queue, usage)
    if not fits:
        restore_targets(task, targets)
        return []
    return give_back(task, targets, may_borrow=True)


def _candidates(task: PreemptionTask) -> list[AdmissionWorkload]:
    queue, rules = task.queue, task.rules
    found = candidates_of(task, queue, rules.within_cluster_queue)
    if queue.node.parent is None or rules.reclaim_within_cohort == NEVER:
        return found
    for node in queue.node.root.subtree_queues():
        if node is not queue.node and not node.is_within_quota(task.short):
            other = task.snapshot.queues[node.name]
            found += candidates_of(task, other, rules.reclaim_within_cohort)
    return found


def _fits(task: PreemptionTask) -> bool:
    """Whether all fits, the request itself not counted as in use."""
    usage = quota_usage(task.usage)
    task.snapshot.remove_usage(task.queue, usage)
    fits = task.fits(may_borrow=True)
    task.snapshot.add_usage(task.queue, usage)
    return fits


def _first_round(
    task: PreemptionTask, candidates: Sequence[AdmissionWorkload], strategy: str
) -> tuple[bool, list[PreemptionTarget], list[AdmissionWorkload]]:
    """Whether it fits, targets, and candidates that were set aside."""
    order = TargetQueues(task, candidates)
    targets: list[PreemptionTarget] = []
    aside: list[AdmissionWorkload] = []
    is_within_nominal = task.queue.node.is_within_quota(task.short)
    while (queue := order.next()) is not None:
        held = order.candidates[queue.name]
        chosen: AdmissionWorkload | None = None
        reason = FAIR
        if queue is task.queue or is_within_nominal:
            chosen = held.pop(0)
            reason = IN_QUEUE if queue is task.queue else RECLAIM
        else:
            own, other = order.compared_nodes(queue)
            mine, theirs = dominant_share(own), dominant_share(other)
            if math.isinf(mine.value) and not math.isinf(theirs.value):
                aside += held
                held.clear()
            while held and chosen is None:
                one = held.pop(0)
                if _passes(task, strategy, mine, theirs, queue, one, other):
                    chosen = one
                else:
                    aside.append(one)
        if chosen is not None:
            task.snapshot.remove(chosen)
            targets.append(PreemptionTarget(chosen, reason))
            if _fits(task):
                return True, targets, aside
    return False, targets, aside


def _passes(
    task: PreemptionTask,
    strategy: str,
    mine: DominantShare,
    theirs: DominantShare,
    queue: AdmissionQueue,
    one: AdmissionWorkload,
    node: QuotaNode,
) -> bool:
    """Whether a strategy lets a workload be preempted. node: whose share is compared."""
    if strategy != FINAL_SHARE:
        return mine.rank < theirs.rank
    task.snapshot.remove_usage(queue, one.usage)
    after = dominant_share(node)
    task.snapshot.add_usage(queue, one.usage)
    return mine.rank <= after.rank


def _second_round(
    task: PreemptionTask, aside: Sequence[AdmissionWorkload], targets: list[PreemptionTarget]
) -> bool:
    """One try per queue with those set aside; True if it fits."""
    order = TargetQueues(task, aside)
    while (queue := order.next()) is not None:
        own, other = order.compared_nodes(queue)
        one = order.candidates[queue.name].pop(0)
        if dominant_share(own).rank < dominant_share(other).rank:
            task.snapshot.remove(one)
            targets.append(PreemptionTarget(one, FAIR))
            if _fits(task):
                return True
        order.dropped.add(queue.node)
    return False


class TargetQueues:
    """Walks down the tree to the queue with the highest share, again after every target.

    candidates: by queue, in order. dropped: nodes that are out.
    """

    def __init__(self, task: PreemptionTask, candidates: Iterable[AdmissionWorkload]) -> None:
        self.task = task
        self.candidates: dict[str, list[AdmissionWorkload]] = {}
        for one in candidates:
            self.candidates.setdefault(one.cluster_queue, []).append(one)
        self.dropped: set[QuotaNode] = set()
        self._path = set(task.queue.node.ancestors)

    def next(self) -> AdmissionQueue | None:
        """The queue to take from; None if none is left."""
        own = self.task.queue
        if own.node.parent is None:
            has_more = self.candidates.get(own.name) and own.node not in self.dropped
            return own if has_more else None
        root = own.node.root
        while root not in self.dropped:
            found = self._below(root)
            if found is not None:
                return self.task.snapshot.queues[found.name]
        return None

    def compared_nodes(self, target: AdmissionQueue) -> tuple[QuotaNode, QuotaNode]:
        """The nodes just below the lowest common cohort, the preemptor's first."""
        mine = [self.task.queue.node, *self.task.queue.node.ancestors]
        theirs = [target.node, *target.node.ancestors]
        while len(mine) > 1 and len(theirs) > 1 and mine[-2] is theirs[-2]:
            mine.pop()
            theirs.pop()
        return mine[-2], theirs[-2]

    def _below(self, cohort: QuotaNode) -> QuotaNode | None:
        queue, queue_rank = self._best_queue(cohort)
        best: QuotaNode | None = None
        rank = _NO_SHARE
        for child in cohort.cohorts:
            if child in self.dropped:
                continue
            share = dominant_share(child)
            if not share.is_borrowing and child not in self._path:
                self.dropped.add(child)
            elif share.rank >= rank:
                best, rank = child, share.rank
        if best is None and queue is None:
            self.dropped.add(cohort)
            return None
        if best is not None and rank >= queue_rank:
            return self._below(best)
        return queue

    def _best_queue(self, cohort: QuotaNode) -> tuple[QuotaNode | None, Rank]:
        best: QuotaNode | None = None
        rank = _NO_SHARE
        for queue in cohort.active_queues:
            if queue in self.dropped:
                continue
            share = dominant_share(queue)
            is_own = queue is self.task.queue.node
            if not self.candidates.get(queue.name) or not (share.is_borrowing or is_own):
                self.dropped.add(queue)
            elif best is None or share.rank > rank:
                best, rank = queue, share.rank
            elif share.rank == rank and self._first_key(queue) < self._first_key(best):
                best = queue
        return best, rank

    def _first_key(self, queue: QuotaNode) -> tuple[bool, bool, int, float, str]:
        own = self.task.queue.name
        return victim_key(self.candidates[queue.name][0], own, self.task.now)
