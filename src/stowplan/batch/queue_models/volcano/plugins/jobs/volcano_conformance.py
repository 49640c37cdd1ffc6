"""conformance: pods of the system are not evicted.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/conformance/conformance.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask

CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})
SYSTEM_NAMESPACE = "kube-system"


class VolcanoConformance(VolcanoPlugin):
    """Spares critical pods."""

    name = "conformance"

    def preemptable(self, task: VolcanoTask, others: list[VolcanoTask]) -> list[VolcanoTask]:
        """Tasks that are not the system's."""
        return [other for other in others if not _is_critical(other)]

    reclaimable = preemptable

    def evictable(
        self, job: VolcanoSessionJob, others: list[VolcanoTask], reclaims: bool
    ) -> list[VolcanoTask]:
        """Tasks that are not the system's."""
        return [other for other in others if not _is_critical(other)]


def _is_critical(task: VolcanoTask) -> bool:
    is_system = task.pod.metadata.namespace == SYSTEM_NAMESPACE
    return is_system or task.pod.spec.priority_class_name in CRITICAL
