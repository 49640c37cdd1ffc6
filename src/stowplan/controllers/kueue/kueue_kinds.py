"""Kueue's kinds on the embedded cluster: their paths and definitions.

The definitions keep every field and have the columns of Kueue's own. Where Kueue's are applied
those serve.

Source: sigs.k8s.io/kueue of 2026-08-22, config/components/crd/bases.
"""

from __future__ import annotations

from collections.abc import Iterator

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
POD_GROUP_LABEL = f"{GROUP}/pod-group-name"
POD_GROUP_COUNT = f"{GROUP}/pod-group-total-count"
MANAGED_LABEL = f"{GROUP}/managed"
POD_SET_LABEL = f"{GROUP}/podset"
WORKLOAD_ANNOTATION = f"{GROUP}/workload"
MIN_PARALLELISM = f"{GROUP}/job-min-parallelism"
ADMISSION_GATE = f"{GROUP}/admission"
TOPOLOGY_GATE = f"{GROUP}/topology"

_Column = tuple[str, str, str]
_KINDS: tuple[tuple[str, str, tuple[str, ...], tuple[_Column, ...], bool], ...] = (
    (
        "ClusterQueue", "clusterqueues", ("cq",),
        (
            ("Cohort", "string", ".spec.cohortName"),
            ("Pending Workloads", "integer", ".status.pendingWorkloads"),
            ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ),
        False,
    ),
    (
        "LocalQueue", "localqueues", ("queue", "queues", "lq"),
        (
            ("ClusterQueue", "string", ".spec.clusterQueue"),
            ("Pending Workloads", "integer", ".status.pendingWorkloads"),
            ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ),
        True,
    ),
    (
        "Workload", "workloads", ("wl", "kueueworkload"),
        (
            ("Queue", "string", ".spec.queueName"),
            ("Reserved in", "string", ".status.admission.clusterQueue"),
            ("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status"),
            ("Finished", "string", ".status.conditions[?(@.type=='Finished')].status"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        True,
    ),
    ("Cohort", "cohorts", (), (("Parent", "string", ".spec.parentName"),), False),
    ("ResourceFlavor", "resourceflavors", ("flavor", "flavors", "rf"), (), False),
    ("Topology", "topologies", ("topo",), (), False),
    ("AdmissionCheck", "admissionchecks", (), (), False),
    ("WorkloadPriorityClass", "workloadpriorityclasses", (), (("Value", "integer", ".value"),),
     False),
)  # fmt: skip
"""Kind, plural, short names, columns, and whether it is namespaced."""


def kueue_definitions() -> Iterator[Tree]:
    """CustomResourceDefinitions of all kinds, in both versions."""
    for kind, plural, short, columns, is_namespaced in _KINDS:
        names = {
            "kind": kind,
            "listKind": f"{kind}List",
            "plural": plural,
            "singular": kind.lower(),
            "shortNames": list(short),
        }
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "names": names,
                "scope": "Namespaced" if is_namespaced else "Cluster",
                "versions": [
                    _version("v1beta2", columns, is_stored=True),
                    _version("v1beta1", columns, is_stored=False),
                ],
            },
        }


def _version(name: str, columns: tuple[_Column, ...], *, is_stored: bool) -> Tree:
    return {
        "name": name,
        "served": True,
        "storage": is_stored,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": title, "type": type_, "jsonPath": path} for title, type_, path in columns
        ],
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
    }
