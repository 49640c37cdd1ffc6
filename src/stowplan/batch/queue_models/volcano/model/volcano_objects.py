"""Clusters of Volcano from Kubernetes objects.

Source: volcano master of 2026-08-20, pkg/scheduler/cache (Snapshot, event handlers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stowplan.batch.queue_models.volcano.hyper_nodes import HyperNode
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import DeviceRequests, VolcanoCluster
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import COMPLETED_STATUSES, VolcanoTask
from stowplan.columns import NodeTable
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass

DEFAULT_QUEUE = "default"


class VolcanoObjects(msgspec.Struct):
    """Objects that a session reads beside nodes. now: seconds since 1970. time_of_day: minutes."""

    pods: Sequence[Pod] = ()
    groups: Sequence[PodGroup] = ()
    queues: Sequence[Queue] = ()
    priority_classes: Sequence[PriorityClass] = ()
    budgets: Sequence[PodDisruptionBudget] = ()
    hyper_nodes: Sequence[HyperNode] = ()
    device_requests: Mapping[str, DeviceRequests] = {}
    default_queue: str = DEFAULT_QUEUE
    now: float = 0.0
    time_of_day: int = 0


def cluster_of(table: NodeTable, objects: VolcanoObjects) -> VolcanoCluster:
    """The cluster that a session opens on; pods of the table's nodes are those of `objects`."""
    queues = {queue.name: VolcanoQueue(queue) for queue in objects.queues}
    found = _jobs(objects.groups, objects.priority_classes, objects.default_queue)
    jobs = {job.uid: job for job in found if job.queue in queues}
    nodes = {node.name: VolcanoNode(node, row) for row, node in enumerate(table.nodes)}
    for pod in objects.pods:
        task = VolcanoTask.of(pod)
        node = nodes.get(task.node)
        if node is not None and task.status not in COMPLETED_STATUSES:
            node.add(task)
        job = jobs.get(task.job)
        if job is not None:
            job.enter(task)
    return VolcanoCluster(
        jobs,
        nodes,
        queues,
        objects.hyper_nodes,
        objects.budgets,
        objects.now,
        objects.time_of_day,
        objects.device_requests,
    )


def _jobs(
    groups: Iterable[PodGroup], classes: Iterable[PriorityClass], default_queue: str
) -> Iterable[VolcanoSessionJob]:
    values = {one.name: one.value for one in classes}
    default = next((one.value for one in classes if one.global_default), 0)
    for group in groups:
        priority = values.get(group.spec.priority_class_name, default)
        yield VolcanoSessionJob(group, priority, default_queue)
