"""Preemption: which workloads give up their quota, without fair sharing, and what both kinds share.

Source: Kueue, pkg/scheduler/preemption: preemption.go, classical/, common/; KEP-83, KEP-1337.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stowplan.batch.queue_models.kueue.admission_queue import (
    AdmissionQueue,
    AdmissionSnapshot,
    uses_any,
)
from stowplan.batch.queue_models.kueue.admission_workload import (
    QUOTA_RESERVED,
    AdmissionWorkload,
    Usage,
)
from stowplan.batch.queue_models.kueue.kueue_objects import NEVER, ClusterQueuePreemption
from stowplan.batch.queue_models.kueue.quota.quota_amounts import FlavorResource
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode
from stowplan.batch.queue_models.kueue.topology.placement_search import PlacementRequest
from stowplan.batch.queue_models.kueue.topology_requests import place

IN_QUEUE = "InClusterQueue"
RECLAIM = "InCohortReclamation"
RECLAIM_BORROWING = "InCohortReclaimWhileBorrowing"
FAIR = "InCohortFairSharing"


@dataclass(frozen=True, slots=True)
class PreemptionTarget:
    """A workload to preempt, and why."""

    workload: AdmissionWorkload
    reason: str


@dataclass(slots=True)
class PreemptionTask:
    """Whose quota is to be found. usage: all that is asked for. short: pairs that others have to
    give up. placements: pod sets to place, by flavor."""

    snapshot: AdmissionSnapshot
    workload: AdmissionWorkload
    queue: AdmissionQueue
    usage: dict[FlavorResource, int]
    short: set[FlavorResource]
    now: float
    placements: Mapping[str, list[PlacementRequest]] = field(default_factory=dict)

    @property
    def rules(self) -> ClusterQueuePreemption:
        """Policies of the queue."""
        return self.queue.spec.preemption

    def fits(self, *, may_borrow: bool) -> bool:
        """Whether all that is asked for fits now."""
        node = self.queue.node
        for pair, n in self.usage.items():
            if not may_borrow and node.is_borrowing(pair, n):
                return False
            if n > node.available_now(pair):
                return False
        return place(self.snapshot, self.workload, self.placements).failed is None


def in_victim_order(
    task: PreemptionTask, workloads: Iterable[AdmissionWorkload]
) -> list[AdmissionWorkload]:
    """Evicted ones first, then of other queues, low priority, late quota, small uid. Where usage of
    LocalQueues orders a queue, those of its LocalQueue that used more come before its others.

    Differs: the original's comparison of several such queues is no order, for usage counts within a
    queue only. Here the places of a queue are those without usage, and usage says who has which.
    """
    found = sorted(workloads, key=lambda one: victim_key(one, task.queue.name, task.now))
    usage, queues = task.snapshot.usage, task.snapshot.queues
    if usage is None or not any(queues[one.cluster_queue].is_by_usage for one in found):
        return found
    held: dict[str, list[AdmissionWorkload]] = {}
    for one in found:
        held.setdefault(one.cluster_queue, []).append(one)
    known = {one.queue_name: usage.of(one.queue_name) for one in found}
    for name, own in held.items():
        if queues[name].is_by_usage:
            own.sort(key=lambda one: (not one.is_evicted, -known[one.queue_name]))
    following = {name: iter(own) for name, own in held.items()}
    return [next(following[one.cluster_queue]) for one in found]


def victim_key(
    one: AdmissionWorkload, queue: str, now: float
) -> tuple[bool, bool, int, float, str]:
    """By what candidates are ordered."""
    reserved = one.conditions.get(QUOTA_RESERVED)
    since = reserved.since if reserved is not None and reserved.is_true else now
    return not one.is_evicted, one.cluster_queue == queue, one.priority, -since, one.uid


def is_policy_met(policy: str, preemptor: AdmissionWorkload, candidate: AdmissionWorkload) -> bool:
    """Whether a policy lets one preempt the other."""
    is_lower = candidate.priority < preemptor.priority
    if policy == "LowerOrNewerEqualPriority":
        is_newer = (
            candidate.priority == preemptor.priority
            and preemptor.queued_since < candidate.queued_since
        )
        return is_lower or is_newer
    return is_lower if policy == "LowerPriority" else policy == "Any"


def candidates_of(
    task: PreemptionTask, queue: AdmissionQueue, policy: str
) -> list[AdmissionWorkload]:
    """Workloads of a queue that use what is short, as the policy allows."""
    found = [
        one
        for one in queue.workloads.values()
        if uses_any(one, task.short) and is_policy_met(policy, task.workload, one)
    ]
    memory = task.snapshot.evictions
    if memory is None:
        return found
    key, tree = task.workload.key, task.queue.node.root.name
    return [one for one in found if one.is_evicted or not memory.is_barred(key, one.key, tree)]


def give_back(
    task: PreemptionTask, targets: list[PreemptionTarget], *, may_borrow: bool
) -> list[PreemptionTarget]:
    """Keep alive every target without which all fits too, the last one excepted; all targets are
    put back."""
    snapshot = task.snapshot
    for i in range(len(targets) - 2, -1, -1):
        snapshot.add(targets[i].workload)
        if task.fits(may_borrow=may_borrow):
            targets[i] = targets[-1]
            targets.pop()
        else:
            snapshot.remove(targets[i].workload)
    restore_targets(task, targets)
    return targets


def restore_targets(task: PreemptionTask, targets: Iterable[PreemptionTarget]) -> None:
    """Put targets back."""
    for one in targets:
        task.snapshot.add(one.workload)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """ancestor: the cohort that it shares with the preemptor; None in the same queue."""

    workload: AdmissionWorkload
    ancestor: QuotaNode | None
    reason: str
    needs_no_borrowing: bool


def classical_targets(task: PreemptionTask) -> list[PreemptionTarget]:
    """Targets without fair sharing; none if preemption does not help."""
    own = _own_candidates(task)
    hierarchical, by_priority = _cohort_candidates(task)
    groups = (hierarchical, by_priority, own)
    candidates = [
        one
        for is_evicted in (True, False)
        for group in groups
        for one in group
        if one.workload.is_evicted is is_evicted
    ]
    is_forbidden = task.rules.borrow_within_cohort.policy == NEVER
    has_others = bool(hierarchical or by_priority)
    if not has_others or (is_forbidden and not _is_under_nominal(task)):
        attempts = [True]
    elif is_forbidden and not hierarchical:
        attempts = [False, True]
    else:
        attempts = [True, False]
    for may_borrow in attempts:
        found = _attempt(task, candidates, may_borrow=may_borrow)
        if found:
            return found
    return []


def _attempt(
    task: PreemptionTask, candidates: Sequence[_Candidate], *, may_borrow: bool
) -> list[PreemptionTarget]:
    targets: list[PreemptionTarget] = []
    for one in candidates:
        if not _is_valid(task, one, may_borrow=may_borrow):
            continue
        task.snapshot.remove(one.workload)
        targets.append(PreemptionTarget(one.workload, one.reason))
        if task.fits(may_borrow=may_borrow):
            return give_back(task, targets, may_borrow=may_borrow)
    restore_targets(task, targets)
    return []


def _is_valid(task: PreemptionTask, one: _Candidate, *, may_borrow: bool) -> bool:
    """Whether the queue of a candidate, and cohorts above it, still borrow."""
    if one.ancestor is None:
        return True
    if may_borrow and one.needs_no_borrowing:
        return False
    node = task.snapshot.queues[one.workload.cluster_queue].node
    if node.is_within_quota(task.short):
        return False
    for cohort in node.ancestors:
        if cohort is one.ancestor:
            break
        if cohort.is_within_quota(task.short):
            return False
    return True


def _is_under_nominal(task: PreemptionTask) -> bool:
    node = task.queue.node
    return all(node.quota(pair).nominal > node.usage.get(pair, 0) for pair in task.short)


def _sorted(task: PreemptionTask, candidates: list[_Candidate]) -> list[_Candidate]:
    by_key = {one.workload.key: one for one in candidates}
    return [by_key[one.key] for one in in_victim_order(task, (c.workload for c in candidates))]


def _own_candidates(task: PreemptionTask) -> list[_Candidate]:
    found = candidates_of(task, task.queue, task.rules.within_cluster_queue)
    return _sorted(task, [_Candidate(one, None, IN_QUEUE, False) for one in found])


def _cohort_candidates(task: PreemptionTask) -> tuple[list[_Candidate], list[_Candidate]]:
    """Candidates of the tree that the queue has a claim to, and others."""
    hierarchical: list[_Candidate] = []
    by_priority: list[_Candidate] = []
    node = task.queue.node
    if node.parent is None or task.rules.reclaim_within_cohort == NEVER:
        return hierarchical, by_priority
    has_claim, rest = node.fit_in_quota(task.usage)
    before: QuotaNode | None = None
    for cohort in node.ancestors:
        into = hierarchical if has_claim else by_priority
        for queue in _borrowing_queues(task, cohort, before):
            into += _candidates_from(task, queue, cohort, has_claim=has_claim)
        fits, rest = cohort.fit_in_quota(rest)
        has_claim = has_claim or fits
        before = cohort
    return _sorted(task, hierarchical), _sorted(task, by_priority)


def _borrowing_queues(
    task: PreemptionTask, cohort: QuotaNode, left_out: QuotaNode | None
) -> list[QuotaNode]:
    """Queues that borrow what is short, below cohorts that do, without one subtree."""
    found = []
    for child in cohort.cohorts:
        if child is not left_out and not child.is_within_quota(task.short):
            found += _borrowing_queues(task, child, left_out)
    found += [
        queue
        for queue in cohort.active_queues
        if queue is not task.queue.node and not queue.is_within_quota(task.short)
    ]
    return found


def _candidates_from(
    task: PreemptionTask, queue: QuotaNode, ancestor: QuotaNode, *, has_claim: bool
) -> list[_Candidate]:
    found = []
    rules = task.rules.borrow_within_cohort
    for one in candidates_of(
        task, task.snapshot.queues[queue.name], task.rules.reclaim_within_cohort
    ):
        reason, needs_no_borrowing = RECLAIM, False
        if not has_claim:
            needs_no_borrowing = rules.policy == NEVER or (
                one.priority >= task.workload.priority
                or (
                    rules.max_priority_threshold is not None
                    and one.priority > rules.max_priority_threshold
                )
            )
            reason = RECLAIM if needs_no_borrowing else RECLAIM_BORROWING
        found.append(_Candidate(one, ancestor, reason, needs_no_borrowing))
    return found


def quota_usage(amounts: Mapping[FlavorResource, int]) -> Usage:
    """Amounts as usage without places."""
    return Usage(dict(amounts))
