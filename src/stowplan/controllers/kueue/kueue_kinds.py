"""Kueue's kinds on the embedded cluster: their paths and definitions.

The definitions have the fields of `apis/custom/kueue_types.py` and the columns of Kueue's own.
Where Kueue's are applied those serve.

Source: sigs.k8s.io/kueue of 2026-08-22, config/components/crd/bases.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.controller_runtime.custom_kind import CustomKind
from stowplan.objects.encoding.tree import Tree

GROUP = "kueue.x-k8s.io"
API_VERSION = f"{GROUP}/v1beta2"

CLUSTER_QUEUES = f"{GROUP}/clusterqueues"
LOCAL_QUEUES = f"{GROUP}/localqueues"
COHORTS = f"{GROUP}/cohorts"
FLAVORS = f"{GROUP}/resourceflavors"
TOPOLOGIES = f"{GROUP}/topologies"
CHECKS = f"{GROUP}/admissionchecks"
WORKLOADS = f"{GROUP}/workloads"
PRIORITY_CLASSES = f"{GROUP}/workloadpriorityclasses"

QUEUE_LABEL = f"{GROUP}/queue-name"
PRIORITY_LABEL = f"{GROUP}/priority-class"
JOB_UID_LABEL = f"{GROUP}/job-uid"
MAX_TIME_LABEL = f"{GROUP}/max-exec-time-seconds"
POD_GROUP_LABEL = f"{GROUP}/pod-group-name"
POD_GROUP_COUNT = f"{GROUP}/pod-group-total-count"
MANAGED_LABEL = f"{GROUP}/managed"
POD_SET_LABEL = f"{GROUP}/podset"
WORKLOAD_ANNOTATION = f"{GROUP}/workload"
MIN_PARALLELISM = f"{GROUP}/job-min-parallelism"
ADMISSION_GATE = f"{GROUP}/admission"
TOPOLOGY_GATE = f"{GROUP}/topology"

_VERSIONS = ("v1beta2", "v1beta1")
_KINDS = (
    CustomKind(
        GROUP, "ClusterQueue", "clusterqueues", _VERSIONS, ("cq",),
        (
            ("Cohort", "string", ".spec.cohortName"),
            ("Pending Workloads", "integer", ".status.pendingWorkloads"),
            ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ),
        namespaced=False,
    ),
    CustomKind(
        GROUP, "LocalQueue", "localqueues", _VERSIONS, ("queue", "queues", "lq"),
        (
            ("ClusterQueue", "string", ".spec.clusterQueue"),
            ("Pending Workloads", "integer", ".status.pendingWorkloads"),
            ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ),
    ),
    CustomKind(
        GROUP, "Workload", "workloads", _VERSIONS, ("wl", "kueueworkload"),
        (
            ("Queue", "string", ".spec.queueName"),
            ("Reserved in", "string", ".status.admission.clusterQueue"),
            ("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status"),
            ("Finished", "string", ".status.conditions[?(@.type=='Finished')].status"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
    ),
    CustomKind(
        GROUP, "Cohort", "cohorts", _VERSIONS, (), (("Parent", "string", ".spec.parentName"),),
        namespaced=False,
    ),
    CustomKind(
        GROUP, "ResourceFlavor", "resourceflavors", _VERSIONS, ("flavor", "flavors", "rf"),
        namespaced=False,
    ),
    CustomKind(GROUP, "Topology", "topologies", _VERSIONS, ("topo",), namespaced=False),
    CustomKind(GROUP, "AdmissionCheck", "admissionchecks", _VERSIONS, namespaced=False),
    CustomKind(
        GROUP, "WorkloadPriorityClass", "workloadpriorityclasses", _VERSIONS, (),
        (("Value", "integer", ".value"),), namespaced=False,
    ),
)  # fmt: skip


def kueue_definitions() -> Iterator[Tree]:
    """CustomResourceDefinitions of all kinds, in both versions."""
    return (kind.definition() for kind in _KINDS)
