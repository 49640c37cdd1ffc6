"""One cycle: heads are nominated against a snapshot, then processed one by one.

Source: Kueue, pkg/scheduler/scheduler.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stowplan.batch.queue_models.kueue.admission_order import AdmissionEntry, in_order
from stowplan.batch.queue_models.kueue.admission_queue import AdmissionSnapshot
from stowplan.batch.queue_models.kueue.admission_workload import AdmissionWorkload, Usage
from stowplan.batch.queue_models.kueue.flavor_assignment import (
    WAITING_FOR_QUOTA,
    FlavorAssignment,
    Mode,
)
from stowplan.batch.queue_models.kueue.flavor_search import NOMINATED, FlavorSearch
from stowplan.batch.queue_models.kueue.pending_workloads import (
    AFTER_NOMINATION,
    GATED,
    NO_CANDIDATES,
    NO_FIT,
    PENDING_PREEMPTION,
)
from stowplan.batch.queue_models.kueue.preemption.preemption_targets import PreemptionTarget
from stowplan.batch.queue_models.kueue.preemption.preemptor import Preemptor
from stowplan.batch.queue_models.kueue.quota.quota_amounts import minus, plus
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode
from stowplan.batch.queue_models.kueue.topology_requests import (
    asks_for_topology,
    note_places,
    place,
    placement_requests,
)

WAITING_FOR_PREEMPTED = "WaitingForPreemptedWorkloads"
_RECOMPUTE_OVERLAP = "RecomputeAssignmentUponPreemptionTargetsOverlap"
_RECOMPUTE_TOPOLOGY = "TASRecomputeAssignmentWithinSchedulingCycle"

Nominated = tuple[FlavorAssignment, list[PreemptionTarget]]


class AdmissionCycle:
    """A cycle on a snapshot. now: seconds. preempted: victims of the entries so far, by key."""

    def __init__(self, snapshot: AdmissionSnapshot, now: float) -> None:
        self.snapshot = snapshot
        self.now = now
        self.preempted: dict[str, AdmissionWorkload] = {}
        self._preempted_below: dict[QuotaNode, dict[str, AdmissionWorkload]] = {}
        self.order: list[AdmissionEntry] = []

    def run(self, entries: Sequence[AdmissionEntry]) -> None:
        """Nominate and process heads; what became of them is in the entries."""
        for one in entries:
            self._assign(one, {})
        rules = self.snapshot.options.pods_ready
        is_admitting = False
        for one in in_order(entries, self.snapshot):
            self.order.append(one)
            if rules is not None and rules.blocks and is_admitting:
                # The next one waits until the pods of the one before are ready.
                one.requeue, one.reason = AFTER_NOMINATION, "Waiting"
                continue
            self._process(one)
            is_admitting = is_admitting or one.is_admitted

    def _assign(self, entry: AdmissionEntry, nominated: NOMINATED) -> None:
        """Search flavors and victims, and note how far the search came."""
        workload, queue, cycle = entry.workload, entry.queue, self.snapshot.cycle
        tried = workload.tried
        if tried is not None and (
            tried.shape != workload.shape
            or (cycle - tried.cycle > 1 and queue.generation > tried.generation)
        ):
            workload.tried = None
        assignment, targets = self._initial(entry, nominated)
        if "TopologyAwareScheduling" in self.snapshot.options.gates:
            self._place_after_preemption(entry, assignment, targets)
        entry.assignment, entry.targets = assignment, targets
        workload.tried = assignment.tried(queue.generation, cycle, workload.shape)

    def _initial(self, entry: AdmissionEntry, nominated: NOMINATED) -> Nominated:
        """All pods; if these neither fit nor find victims, as many as do."""
        preemptor = Preemptor(self.snapshot, entry.queue, self.now)
        search = FlavorSearch(self.snapshot, entry.queue, entry.workload, preemptor, nominated)

        def tried(counts: list[int] | None) -> Nominated | None:
            assignment = search.assign(counts)
            if assignment.mode is Mode.FIT:
                return assignment, []
            if assignment.mode is Mode.PREEMPT:
                targets = preemptor.targets(entry.workload, assignment)
                if targets:
                    return assignment, targets
            if counts is None:
                whole.append(assignment)
            return None

        whole: list[FlavorAssignment] = []
        found = tried(None)
        if found is None and (
            entry.workload.is_shrinkable and "PartialAdmission" in self.snapshot.options.gates
        ):
            found = fewer_pods(entry.workload, tried)
        return (whole[0], []) if found is None else found

    def _place_after_preemption(
        self,
        entry: AdmissionEntry,
        assignment: FlavorAssignment,
        targets: Sequence[PreemptionTarget],
    ) -> None:
        """Places that are free once the victims are gone; without victims those in an empty
        topology."""
        workload, queue, snapshot = entry.workload, entry.queue, self.snapshot
        is_asked = queue.is_topology_only or any(map(asks_for_topology, workload.pod_sets))
        if assignment.mode is not Mode.PREEMPT or not is_asked or workload.has_failed_places:
            return
        requests = placement_requests(queue, workload, assignment, snapshot.places)
        victims = [one.workload for one in targets]
        snapshot.free_usage_of(victims)
        result = place(snapshot, workload, requests, is_empty=not victims)
        snapshot.use_again(victims)
        names = [one.pod_set.name for held in requests.values() for one in held]
        note_places(assignment, queue, result.placed, names, snapshot.places)

    def _usage(self, entry: AdmissionEntry) -> Usage:
        return entry.assignment.usage(holds_quota=entry.workload.holds_quota)

    def _fits(self, entry: AdmissionEntry) -> str:
        """ "" if it fits with all victims of the cycle and its own gone, else `quota` or
        `topology`."""
        usage = self._usage(entry)
        root = entry.queue.node.root
        # Quota of other trees does not matter, and places only to one that asks for some.
        victims = dict(self.preempted if usage.places else self._preempted_below.get(root, {}))
        victims |= {one.workload.key: one.workload for one in entry.targets}
        self.snapshot.free_usage_of(victims.values())
        found = ""
        if any(entry.queue.node.available_now(pair) < n for pair, n in usage.quota.items()):
            found = "quota"
        elif any(
            use.flavor not in self.snapshot.places or not self.snapshot.places[use.flavor].fits(use)
            for use in usage.places
        ):
            found = "topology"
        self.snapshot.use_again(victims.values())
        return found

    def _overlaps(self, entry: AdmissionEntry) -> bool:
        return any(one.workload.key in self.preempted for one in entry.targets)

    def _recompute(self, entry: AdmissionEntry, misfit: str) -> str:
        """Assign once more where it no longer fits by topology, or its victims are others'."""
        gates = self.snapshot.options.gates
        is_overlap = self._overlaps(entry) and _RECOMPUTE_OVERLAP in gates
        if not is_overlap and not (misfit == "topology" and _RECOMPUTE_TOPOLOGY in gates):
            return misfit
        entry.workload.tried = None
        nominated = {
            one.name: {resource: choice.flavor for resource, choice in one.flavors.items()}
            for one in entry.assignment.pod_sets
        }
        victims: list[AdmissionWorkload] = []
        if is_overlap:
            # Those of other trees matter to places only.
            own = self._preempted_below.get(entry.queue.node.root, {})
            victims += (self.preempted if entry.queue.topologies else own).values()
        for one in victims:
            self.snapshot.remove(one)
        self._assign(entry, nominated)
        for one in victims:
            self.snapshot.add(one)
        if is_overlap and entry.assignment.mode is Mode.FIT:
            entry.assignment.set_mode(Mode.DEFERRED_FIT)
        return self._fits(entry)

    def _process(self, entry: AdmissionEntry) -> None:
        """Decide about one entry; later ones see what it takes."""
        misfit = self._recompute(entry, self._fits(entry))
        workload, mode = entry.workload, entry.assignment.mode
        fails_fast = "TASFailedNodeReplacementFailFast" in self.snapshot.options.gates
        if fails_fast and workload.has_failed_places and mode is not Mode.FIT:
            entry.is_evicted = True
            return
        if mode is Mode.NO_FIT:
            entry.requeue, entry.reason = NO_FIT, entry.assignment.no_fit_reason
        elif mode is Mode.PREEMPT and not entry.targets:
            entry.requeue, entry.reason = NO_CANDIDATES, WAITING_FOR_QUOTA
            if entry.queue.spec.preemption.reclaim_within_cohort != "Any":
                self.snapshot.add_usage(entry.queue, self._reserved(entry))
        elif mode is Mode.PREEMPT and self._is_gated(entry):
            entry.requeue, entry.reason = GATED, "AdmissionGated"
            workload.tried = None
        elif mode is Mode.DEFERRED_FIT:
            entry.requeue, entry.reason = PENDING_PREEMPTION, WAITING_FOR_PREEMPTED
            workload.tried = None
            self.snapshot.add_usage(entry.queue, self._usage(entry))
        elif misfit or self._overlaps(entry):
            entry.is_skipped = True
            entry.requeue, entry.reason = AFTER_NOMINATION, WAITING_FOR_QUOTA
        else:
            self._take(entry)

    def _is_gated(self, entry: AdmissionEntry) -> bool:
        return (
            "MultiKueueOrchestratedPreemption" in self.snapshot.options.gates
            and entry.workload.has_closed_gate
        )

    def _take(self, entry: AdmissionEntry) -> None:
        for target in entry.targets:
            victim = target.workload
            root = self.snapshot.queues[victim.cluster_queue].node.root
            self.preempted[victim.key] = victim
            self._preempted_below.setdefault(root, {})[victim.key] = victim
        self.snapshot.add_usage(entry.queue, self._usage(entry))
        if entry.assignment.mode is Mode.PREEMPT:
            entry.requeue, entry.reason = PENDING_PREEMPTION, WAITING_FOR_PREEMPTED
            entry.workload.tried = None
        else:
            entry.is_admitted = True

    def _reserved(self, entry: AdmissionEntry) -> Usage:
        """What a workload without victims keeps from later entries."""
        node, found = entry.queue.node, {}
        for pair, n in self._usage(entry).quota.items():
            quota, used = node.quota(pair), node.usage.get(pair, 0)
            if entry.assignment.height == 0:
                found[pair] = max(0, min(n, minus(quota.nominal, used)))
            elif quota.borrowing_limit is None:
                found[pair] = n
            else:
                most = minus(plus(quota.nominal, quota.borrowing_limit), used)
                found[pair] = min(n, most)
        return Usage(found, entry.assignment.places)


def fewer_pods(
    workload: AdmissionWorkload, tried: Callable[[list[int]], Nominated | None]
) -> Nominated | None:
    """The most pods for which `tried` finds something, by bisection between full and minimum
    counts; monotony is assumed."""
    full = [one.count for one in workload.pod_sets]
    spare = [
        one.count - (one.count if one.min_count is None else one.min_count)
        for one in workload.pod_sets
    ]
    total = sum(spare)
    low, high = 0, total + 1
    found: Nominated | None = None
    found_at = -1
    while low < high:
        middle = (low + high) // 2
        counts = [n - d * middle // total for n, d in zip(full, spare, strict=True)]
        one = tried(counts)
        if one is None:
            low = middle + 1
        else:
            found, found_at, high = one, middle, middle
    return found if low == found_at else None


def required_checks(checks: Mapping[str, frozenset[str]], assignment: FlavorAssignment) -> set[str]:
    """Checks that an assignment needs. checks: of the queue, with their flavors."""
    flavors = {one.flavor for held in assignment.pod_sets for one in held.flavors.values()}
    return {name for name, on in checks.items() if on & flavors}
