"""The preemptor: targets for an assignment, and simulation for a single resource.

Source: Kueue, pkg/scheduler/preemption: preemption.go, preemption_oracle.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.kueue.admission_queue import AdmissionQueue, AdmissionSnapshot
from stowplan.batch.queue_models.kueue.admission_workload import AdmissionWorkload
from stowplan.batch.queue_models.kueue.flavor_assignment import FlavorAssignment
from stowplan.batch.queue_models.kueue.flavor_search import Possibility
from stowplan.batch.queue_models.kueue.preemption.fair_preemption import fair_targets
from stowplan.batch.queue_models.kueue.preemption.preemption_targets import (
    PreemptionTarget,
    PreemptionTask,
    classical_targets,
)
from stowplan.batch.queue_models.kueue.quota.quota_amounts import FlavorResource
from stowplan.batch.queue_models.kueue.quota.quota_tree import borrowing_height
from stowplan.batch.queue_models.kueue.topology_requests import placement_requests


class Preemptor:
    """Finds targets in a snapshot for workloads of one queue. now: seconds."""

    def __init__(self, snapshot: AdmissionSnapshot, queue: AdmissionQueue, now: float) -> None:
        self.snapshot = snapshot
        self.queue = queue
        self.now = now

    def targets(
        self, workload: AdmissionWorkload, assignment: FlavorAssignment
    ) -> list[PreemptionTarget]:
        """Whom an assignment preempts."""
        placements = {}
        if "TopologyAwareScheduling" in self.snapshot.options.gates:
            placements = placement_requests(self.queue, workload, assignment, self.snapshot.places)
        return self._targets(
            PreemptionTask(
                self.snapshot,
                workload,
                self.queue,
                assignment.total_for(workload),
                assignment.needs_preemption(),
                self.now,
                placements,
            )
        )

    def simulate(
        self, workload: AdmissionWorkload, pair: FlavorResource, n: int
    ) -> tuple[Possibility, int]:
        """Whether preemption helps for one resource alone, and the height afterwards."""
        task = PreemptionTask(self.snapshot, workload, self.queue, {pair: n}, {pair}, self.now)
        targets = [one.workload for one in self._targets(task)]
        self.snapshot.free_usage_of(targets)
        height = borrowing_height(self.queue.node, pair, n)[0]
        self.snapshot.use_again(targets)
        if not targets:
            return Possibility.NO_CANDIDATES, height
        is_own = any(one.cluster_queue == self.queue.name for one in targets)
        return (Possibility.PREEMPT if is_own else Possibility.RECLAIM), height

    def _targets(self, task: PreemptionTask) -> list[PreemptionTarget]:
        if self.snapshot.options.is_fair:
            return fair_targets(task)
        return classical_targets(task)
