"""RayClusters: the pods of the head and of all workers. RayJobs and RayServices: their RayCluster.

Source: kuberay v1.4, ray-operator/controllers/ray/common (pod.go, association.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.inputs.importers.imported_objects import (
    Imported,
    ImportLookup,
    Tree,
    mapping,
    namespace_of,
    owner_of,
)
from stowplan.inputs.importers.replica_counts import checked
from stowplan.inputs.manifests import decode_object
from stowplan.objects.kai.grouping.sub_groups import RAY_GROUP, RAY_HEAD
from stowplan.objects.meta import Value
from stowplan.objects.pod import Pod

UNMODELLED = (
    "spec.enableInTreeAutoscaling", "spec.submissionMode", "spec.clusterSelector",
    "spec.activeDeadlineSeconds", "spec.serveConfigV2",
)  # fmt: skip
_ENDED = ("Complete", "Failed")
_CLUSTER_OF = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}


class RayWorkerGroup(Value, frozen=True):
    """An entry of `spec.workerGroupSpecs`."""

    group_name: str = ""
    replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool = False
    template: dict[str, Any] = {}


class RayHeadGroup(Value, frozen=True):
    """`spec.headGroupSpec`."""

    template: dict[str, Any] = {}


class RaySpec(Value, frozen=True):
    """`spec` of a RayCluster, and of what makes one."""

    suspend: bool = False
    head_group_spec: RayHeadGroup = RayHeadGroup()
    worker_group_specs: tuple[RayWorkerGroup, ...] = ()


class RayStatus(Value, frozen=True):
    """`status` of a RayJob."""

    job_deployment_status: str = ""


class RayWorkload(Imported, frozen=True):
    """A RayCluster, RayJob or RayService."""

    spec: RaySpec = RaySpec()
    status: RayStatus = RayStatus()


def expand(tree: Tree, known: ImportLookup) -> Iterator[Tree]:
    """A workload of Ray, and what its operator makes for it that is not in the input."""
    found = decode_object(tree, RayWorkload, "")
    if found.spec.suspend or found.status.job_deployment_status in _ENDED:
        return
    if tree["kind"] == "RayCluster":
        yield tree
        yield from _pods(tree, found.spec, known)
        return
    name, known_name = f"{found.name}-raycluster", _cluster_name(tree)
    cluster = _cluster(tree, known_name or name)
    yield tree if known_name else _with_cluster(tree, name)
    if ("RayCluster.ray.io", f"{found.namespace}/{known_name}") not in known.sources:
        yield cluster
        yield from _pods(cluster, decode_object(cluster, RayWorkload, "").spec, known)
    if tree["kind"] == "RayJob":
        known.remark("RayJob: the pod that submits the job is not modelled")


def _cluster_name(tree: Tree) -> str:
    """The RayCluster that a workload's status names, "" for none."""
    status = mapping(tree, "status")
    if tree["kind"] == "RayJob":
        return str(status.get("rayClusterName") or "")
    return str(mapping(status, "activeServiceStatus").get("rayClusterName") or "")


def _with_cluster(tree: Tree, name: str) -> Tree:
    """A workload whose operator has made a RayCluster."""
    status = mapping(tree, "status")
    if tree["kind"] == "RayJob":
        return {**tree, "status": {**status, "rayClusterName": name}}
    active = {**mapping(status, "activeServiceStatus"), "rayClusterName": name}
    return {**tree, "status": {**status, "activeServiceStatus": active}}


def _cluster(tree: Tree, name: str) -> Tree:
    meta = tree["metadata"]
    made = {
        "name": name,
        "namespace": namespace_of(tree),
        "labels": mapping(meta, "labels"),
        "annotations": mapping(meta, "annotations"),
        "ownerReferences": owner_of(tree),
    }
    created = meta.get("creationTimestamp")
    made |= {"creationTimestamp": created} if created else {}
    spec = mapping(mapping(tree, "spec"), _CLUSTER_OF[tree["kind"]])
    version = tree["apiVersion"]
    return {"apiVersion": version, "kind": "RayCluster", "metadata": made, "spec": spec}


def _pods(cluster: Tree, spec: RaySpec, known: ImportLookup) -> Iterator[Tree]:
    name = cluster["metadata"]["name"]
    head = spec.head_group_spec.template
    yield from _missing(cluster, f"{name}-head", head, (RAY_HEAD, "head"), known)
    for i, group in enumerate(spec.worker_group_specs):
        if group.suspend:
            continue
        path = f"spec.workerGroupSpecs[{i}]"
        hosts = checked(group.num_of_hosts, cluster, f"{path}.numOfHosts")
        count = checked(group.replicas, cluster, f"{path}.replicas", 0) * hosts
        named = group.group_name or f"worker-group-{i}"
        for k in range(count):
            marks = named, "worker"
            yield from _missing(cluster, f"{name}-{named}-worker-{k}", group.template, marks, known)


def _missing(
    cluster: Tree, name: str, template: Tree, marks: tuple[str, str], known: ImportLookup
) -> Iterator[Tree]:
    """A pod, unless it is in the input. marks: its group, and whether it is head or worker."""
    namespace = namespace_of(cluster)
    if known.has(Pod, f"{namespace}/{name}"):
        return
    meta = mapping(template, "metadata")
    labels = {
        **mapping(meta, "labels"),
        "ray.io/cluster": cluster["metadata"]["name"],
        RAY_GROUP: marks[0],
        "ray.io/node-type": marks[1],
    }
    made = {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "annotations": mapping(meta, "annotations"),
        "ownerReferences": owner_of(cluster),
    }
    created = cluster["metadata"].get("creationTimestamp")
    made |= {"creationTimestamp": created} if created else {}
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": mapping(template, "spec")}
