"""Workloads that wait in a ClusterQueue: active ones in order, and inadmissible ones.

Source: Kueue, pkg/cache/queue: cluster_queue.go, inadmissible_workloads.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.kueue.admission_workload import REQUEUED, AdmissionWorkload
from stowplan.batch.queue_models.kueue.kueue_objects import ZERO_TIME, seconds

STRICT = "StrictFIFO"

AFTER_NOMINATION = "FailedAfterNomination"
PENDING_PREEMPTION = "PendingPreemption"
NAMESPACE_MISMATCH = "NamespaceMismatch"
GATED = "PreemptionGated"
NO_FIT = "NoFit"
NO_CANDIDATES = "PreemptionNoCandidates"
"""Why a workload goes back to its queue."""


class PendingWorkloads:
    """Workloads that wait in one queue, by key."""

    def __init__(self, strategy: str) -> None:
        self.strategy = strategy
        self.active: dict[str, AdmissionWorkload] = {}
        self.inadmissible: dict[str, AdmissionWorkload] = {}
        self.sticky = ""
        self._bad_shapes: set[bytes] = set()

    def push(self, workload: AdmissionWorkload, now: float) -> None:
        """Let a workload wait that is new, or was evicted."""
        self.inadmissible.pop(workload.key, None)
        is_hopeless = self.strategy != STRICT and workload.shape in self._bad_shapes
        if is_hopeless or not is_requeued(workload, now):
            self.inadmissible[workload.key] = workload
        else:
            self.active[workload.key] = workload

    def requeue(self, workload: AdmissionWorkload, why: str, now: float) -> None:
        """Take back a head that got no quota."""
        key = workload.key
        if why == PENDING_PREEMPTION:
            self.sticky = key if self.strategy != STRICT else ""
        at_once = (
            why != NAMESPACE_MISMATCH
            if self.strategy == STRICT
            else why in (AFTER_NOMINATION, PENDING_PREEMPTION)
        )
        has_left = workload.tried is not None and workload.tried.has_flavors_left
        if is_requeued(workload, now) and (at_once or has_left):
            self.active[key] = workload
            return
        self.inadmissible[key] = workload
        if why in (NO_FIT, NO_CANDIDATES) and self.strategy != STRICT:
            self._bad_shapes.add(workload.shape)
            for other in [one for one in self.active.values() if one.shape == workload.shape]:
                del self.active[other.key]
                self.inadmissible[other.key] = other

    def pop(self) -> AdmissionWorkload | None:
        """Take the head."""
        if not self.active:
            return None
        head = min(self.active.values(), key=self._order)
        return self.active.pop(head.key)

    def all(self) -> list[AdmissionWorkload]:
        """All that wait."""
        return [*self.active.values(), *self.inadmissible.values()]

    def in_order(self) -> list[str]:
        """Keys of all that wait, as they would be heads if nothing changed."""
        return [one.key for one in sorted(self.all(), key=self._order)]

    def forget(self, key: str) -> None:
        """Drop a workload that got quota or ended."""
        self.active.pop(key, None)
        self.inadmissible.pop(key, None)
        if self.sticky == key:
            self.sticky = ""

    def activate(self, namespaces: set[str], now: float) -> None:
        """Try inadmissible workloads again. namespaces: that the queue takes."""
        self._bad_shapes.clear()
        for key, one in list(self.inadmissible.items()):
            if one.namespace in namespaces and is_requeued(one, now):
                del self.inadmissible[key]
                self.active[key] = one

    def _order(self, one: AdmissionWorkload) -> tuple[bool, int, float, str]:
        return one.key != self.sticky, -one.priority, one.queued_since, one.uid


def is_requeued(workload: AdmissionWorkload, now: float) -> bool:
    """Whether an evicted workload may be tried again."""
    condition = workload.conditions.get(REQUEUED)
    if condition is not None and not condition.is_true:
        return False
    state = workload.workload.status.requeue_state
    at = ZERO_TIME if state is None else seconds(state.requeue_at)
    return now >= at
