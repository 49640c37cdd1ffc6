"""conformance: critical pods of the cluster are never victims.

Source: kube-batch v0.5, plugins/conformance.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.batch.session import Session, SessionPlugin
from stowplan.batch.state.jobs import TaskInfo

CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
SYSTEM_NAMESPACE = "kube-system"


class ConformancePlugin(SessionPlugin):
    """Protects critical pods from eviction."""

    name = "conformance"

    def on_open(self, session: Session) -> None:
        """Register the veto for preempt and reclaim."""
        session.hooks.register("preemptable", self.name, self.victims, veto=True)
        session.hooks.register("reclaimable", self.name, self.victims, veto=True)

    def victims(self, task: TaskInfo, candidates: Sequence[TaskInfo]) -> list[TaskInfo]:
        """The candidates that are not critical."""
        return [c for c in candidates if not _is_critical(c)]


def _is_critical(task: TaskInfo) -> bool:
    pod = task.pod
    return (
        pod.spec.priority_class_name in CRITICAL_CLASSES
        or pod.metadata.namespace == SYSTEM_NAMESPACE
    )
