"""Queues that are stopped, and what becomes of the workloads that have their quota.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/core/workload_controller.go
(reconcileOnLocalQueueActiveState, reconcileOnClusterQueueActiveState).
"""

from __future__ import annotations

from typing import NamedTuple

from stowplan.batch.queue_models.kueue.admission_workload import AdmissionWorkload
from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission

_OFF = (None, "", "None")
DRAIN = "HoldAndDrain"


class StoppedQueue(NamedTuple):
    """A queue that is stopped. is_drained: admitted workloads are evicted, too."""

    kind: str
    name: str
    is_drained: bool

    @property
    def eviction(self) -> str:
        """Reason of an eviction."""
        return f"{self.kind}Stopped"

    @property
    def text(self) -> str:
        """Message of an eviction."""
        return f"The {self.kind} is stopped"

    @property
    def message(self) -> str:
        """Why a workload without its checks loses its reservation."""
        return f"{self.kind} {self.name} is stopped"


def stopped_by(one: AdmissionWorkload, admission: KueueAdmission) -> StoppedQueue | None:
    """The stopped queue of a workload that holds quota, its LocalQueue before its ClusterQueue;
    None if neither is stopped."""
    name = one.workload.spec.queue_name
    found = [
        ("LocalQueue", name, local.spec.stop_policy)
        for local in admission.objects.local_queues
        if (local.metadata.namespace, local.name) == (one.namespace, name)
    ]
    queue = admission.queues.get(one.cluster_queue)
    if queue is not None:
        found.append(("ClusterQueue", queue.name, queue.spec.stop_policy))
    stopped = [
        StoppedQueue(kind, title, policy == DRAIN)
        for kind, title, policy in found
        if policy not in _OFF
    ]
    drained = [each for each in stopped if each.is_drained]
    return next(iter(drained or stopped), None)
