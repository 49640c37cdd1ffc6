"""Workloads that were evicted since their queue was stopped wait again once it is started.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/core/workload_controller.go.
"""

from __future__ import annotations

from stowplan.controllers.kueue.kueue_kinds import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from stowplan.controllers.kueue.workload_status import REQUEUED, condition_of, note
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store


def requeue_restarted(api: Store) -> None:
    """Note that such Workloads are requeued."""
    for workload in list(api.list(WORKLOADS)):
        requeued = condition_of(workload, REQUEUED) or {}
        reason = str(requeued.get("reason", ""))
        if requeued.get("status") != "False" or not reason.endswith("QueueStopped"):
            continue
        kind = reason.removesuffix("Stopped")
        queue = _queue_of(workload, kind, api)
        if queue is None or (queue.get("spec") or {}).get("stopPolicy") not in (None, "None"):
            continue
        text = f"The {kind} was restarted after being stopped"
        note(workload, REQUEUED, True, f"{kind}Restarted", text, api.now)
        api.update_status(WORKLOADS, workload)


def _queue_of(workload: Tree, kind: str, api: Store) -> Tree | None:
    """The LocalQueue or the ClusterQueue of a Workload."""
    namespace, name = workload["metadata"]["namespace"], workload["spec"].get("queueName", "")
    local = api.get(LOCAL_QUEUES, namespace, name)
    if local is None or kind == "LocalQueue":
        return local
    return api.get(CLUSTER_QUEUES, "", local["spec"]["clusterQueue"])
