"""Kueue's objects of a cluster, read from its store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from stowplan.batch.queue_models.kueue.kueue_admission import KueueObjects
from stowplan.batch.queue_models.kueue.kueue_objects import (
    AdmissionCheck,
    Cohort,
    KueueClusterQueue,
    KueueLimitRange,
    KueueNamespace,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
)
from stowplan.batch.queue_models.kueue.manifests.kueue_versions import (
    current_version,
    value_problem,
)
from stowplan.controller_runtime.resource_paths import NAMESPACES, NODES, PODS
from stowplan.controllers.kueue.kueue_kinds import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    TOPOLOGIES,
    WORKLOAD_ANNOTATION,
    WORKLOADS,
)
from stowplan.objects.encoding.json_codec import DecodeError, convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.store import Store

COMPONENT = "kueue-admission"
LIMIT_RANGES = "limitranges"
T = TypeVar("T", bound=Object)


def read_objects(api: Store) -> KueueObjects:
    """All objects that decide, without nodes and pods. One that cannot be read is left out, and
    recorded as a failure."""
    return KueueObjects(
        cluster_queues=list(_read(api, CLUSTER_QUEUES, KueueClusterQueue)),
        cohorts=list(_read(api, COHORTS, Cohort)),
        local_queues=list(_read(api, LOCAL_QUEUES, LocalQueue)),
        resource_flavors=list(_read(api, FLAVORS, ResourceFlavor)),
        topologies=list(_read(api, TOPOLOGIES, Topology)),
        admission_checks=list(_read(api, CHECKS, AdmissionCheck)),
        workloads=list(_read(api, WORKLOADS, Workload)),
        namespaces=list(_read(api, NAMESPACES, KueueNamespace)),
        limit_ranges=list(_read(api, LIMIT_RANGES, KueueLimitRange)),
        now=api.now,
    )


def read_workload(api: Store, tree: Tree) -> Workload | None:
    """A Workload; None for one that cannot be read."""
    return _typed(api, WORKLOADS, tree, Workload)


def read_nodes(api: Store) -> list[Node]:
    """All nodes."""
    return list(_read(api, NODES, Node))


def read_other_pods(api: Store) -> list[Pod]:
    """Pods on nodes that have no place of Kueue: they take capacity from topologies."""
    found = _read(api, PODS, Pod)
    return [
        pod
        for pod in found
        if pod.node_name and WORKLOAD_ANNOTATION not in pod.metadata.annotations
    ]


def _read(api: Store, path: str, kind: type[T]) -> Iterator[T]:
    for tree in api.list(path):
        found = _typed(api, path, tree, kind)
        if found is not None:
            yield found


def _typed(api: Store, path: str, tree: Tree, kind: type[T]) -> T | None:
    is_own = path.startswith("kueue.")
    try:
        found = convert(current_version(tree) if is_own else tree, kind)
        problem = value_problem(found)
        if problem:
            raise DecodeError(problem)
    except DecodeError as error:
        api.faults.add(COMPONENT, f"{path}/{tree['metadata']['name']}", error)
        return None
    return found
