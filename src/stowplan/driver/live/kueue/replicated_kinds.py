"""Kinds that Kueue's controllers read on a live cluster, and how the API server serves them."""

from __future__ import annotations

import msgspec

from stowplan.client.resources import ApiResource
from stowplan.controller_runtime.resource_paths import EVENTS, NAMESPACES, NODES, PODS
from stowplan.controllers.kueue.kueue_kinds import (
    API_VERSION,
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    PRIORITY_CLASSES,
    TOPOLOGIES,
    WORKLOADS,
)
from stowplan.controllers.kueue.queued_job_controller import POD_PRIORITY_CLASSES
from stowplan.controllers.kueue.queued_job_kinds import BATCH_JOBS, JOB_KINDS
from stowplan.controllers.kueue.train_jobs import RUNTIMES
from stowplan.objects.meta import NamespacedObject, Object

LIMIT_RANGES = "limitranges"


class NamespacedTree(NamespacedObject, frozen=True):
    """A namespaced object of which only the metadata is typed."""


class ClusterTree(Object, frozen=True):
    """A cluster-scoped object of which only the metadata is typed."""


class ReplicatedKind(msgspec.Struct, frozen=True):
    """A kind by its path in a store. kind: as objects name it."""

    path: str
    kind: str
    resource: ApiResource


def _kind(
    path: str, api_version: str, kind: str, *, namespaced: bool = True, needed: bool = False
) -> ReplicatedKind:
    typed: type[Object] = NamespacedTree if namespaced else ClusterTree
    plural = path.rpartition("/")[2]
    return ReplicatedKind(path, kind, ApiResource(typed, api_version, plural, is_needed=needed))


_OWN = (
    _kind(FLAVORS, API_VERSION, "ResourceFlavor", namespaced=False, needed=True),
    _kind(COHORTS, API_VERSION, "Cohort", namespaced=False),
    _kind(TOPOLOGIES, API_VERSION, "Topology", namespaced=False),
    _kind(CHECKS, API_VERSION, "AdmissionCheck", namespaced=False),
    _kind(PRIORITY_CLASSES, API_VERSION, "WorkloadPriorityClass", namespaced=False),
    _kind(CLUSTER_QUEUES, API_VERSION, "ClusterQueue", namespaced=False, needed=True),
    _kind(LOCAL_QUEUES, API_VERSION, "LocalQueue", needed=True),
    _kind(WORKLOADS, API_VERSION, "Workload", needed=True),
)
_TRAINER = "trainer.kubeflow.org/v1alpha1"

REPLICATED_KINDS: tuple[ReplicatedKind, ...] = (
    _kind(NODES, "v1", "Node", namespaced=False, needed=True),
    _kind(PODS, "v1", "Pod", needed=True),
    _kind(NAMESPACES, "v1", "Namespace", namespaced=False, needed=True),
    _kind(LIMIT_RANGES, "v1", "LimitRange", needed=True),
    _kind(POD_PRIORITY_CLASSES, "scheduling.k8s.io/v1", "PriorityClass", namespaced=False),
    *_OWN,
    *(_kind(one.path, one.api_version, one.kind, needed=one is BATCH_JOBS) for one in JOB_KINDS),
    *(
        _kind(path, _TRAINER, kind, namespaced=kind == "TrainingRuntime")
        for kind, path in RUNTIMES.items()
    ),
)
"""Those that are not needed may be absent. Finished pods are read too: they end Workloads."""
EVENT_KIND = _kind(EVENTS, "v1", "Event")
"""Events are written, and not read."""
KINDS_BY_PATH = {one.path: one for one in (*REPLICATED_KINDS, EVENT_KIND)}
