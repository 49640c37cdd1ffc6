"""Scaled workloads: the pods that a workload of a cluster would have with another size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.manifests import ManifestInventory, Workload
from stowplan.inputs.workloads.workload_expansion import expand_workloads
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolumeClaim, StorageClass
from stowplan.objects.workload import (
    Deployment,
    Job,
    PriorityClass,
    ReplicaSet,
)

_CONTEXT = (PriorityClass, StorageClass, PersistentVolumeClaim)


def with_size(workload: Workload, n_pods: int) -> Workload:
    """The workload with another `spec.replicas`; of a Job, `spec.parallelism`."""
    spec: Any = workload.spec
    if isinstance(workload, Job):
        completions = spec.completions
        more = {} if completions is None else {"completions": max(completions, n_pods)}
        return replace(workload, spec=replace(spec, parallelism=n_pods, **more))
    changed: Workload = replace(workload, spec=replace(spec, replicas=n_pods))
    return changed


def created_pods(
    workload: Workload, cluster: Cluster, nodes: Iterable[Node] = ()
) -> dict[str, Pod]:
    """Key -> pod, of the pods that the workload's controller would create in a cluster.

    Pods that were read count as there, those of an earlier expansion do not. nodes: for a
    DaemonSet.
    """
    inventory = ManifestInventory()
    for node in nodes:
        inventory.add(node, "")
    for one in cluster.objects:
        if isinstance(one, _CONTEXT) or (isinstance(one, ReplicaSet) and _owns(workload, one)):
            inventory.add(one, "")
    for pod in cluster.pods:
        if pod.key not in cluster.origins and pod.namespace == workload.namespace:
            inventory.add(pod, "")
    inventory.add(workload, f"{type(workload).__name__} {workload.key}")
    found = expand_workloads(inventory)
    return {pod.key: pod for pod in found.pods if pod.key in found.origins}


def expanded_pods(workload: Workload, cluster: Cluster) -> list[str]:
    """Keys of the pods that reading the cluster made for a workload."""
    return [key for key, origin in cluster.origins.items() if _is_origin(workload, origin)]


def _is_origin(workload: Workload, origin: object) -> bool:
    if origin is workload:
        return True
    return isinstance(origin, ReplicaSet) and _owns(workload, origin)


def _owns(workload: Workload, replica_set: ReplicaSet) -> bool:
    owner = replica_set.controller
    return (
        isinstance(workload, Deployment)
        and owner is not None
        and (owner.kind, owner.name) == ("Deployment", workload.name)
        and replica_set.namespace == workload.namespace
    )
