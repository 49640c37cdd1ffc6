"""Volcano's kinds on the embedded cluster: their paths and definitions.

The definitions keep every field and have the columns of Volcano's own. Where Volcano's are applied
those serve.

Source: volcano master of 2026-08-20, config/crd/volcano/bases.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.objects.encoding.tree import Tree

BATCH, SCHEDULING, TOPOLOGY = "batch.volcano.sh", "scheduling.volcano.sh", "topology.volcano.sh"
BATCH_VERSION, SCHEDULING_VERSION = f"{BATCH}/v1alpha1", f"{SCHEDULING}/v1beta1"

VOLCANO_JOBS = f"{BATCH}/jobs"
VOLCANO_POD_GROUPS = f"{SCHEDULING}/podgroups"
VOLCANO_QUEUES = f"{SCHEDULING}/queues"

_JOB_COLUMNS = (
    ("Status", "string", ".status.state.phase"),
    ("minAvailable", "integer", ".status.minAvailable"),
    ("RUNNINGS", "integer", ".status.running"),
    ("AGE", "date", ".metadata.creationTimestamp"),
)
_GROUP_COLUMNS = (
    ("STATUS", "string", ".status.phase"),
    ("minMember", "integer", ".spec.minMember"),
    ("RUNNINGS", "integer", ".status.running"),
    ("AGE", "date", ".metadata.creationTimestamp"),
)
_QUEUE_COLUMNS = (("PARENT", "string", ".spec.parent"),)


def volcano_definitions() -> Iterator[Tree]:
    """CustomResourceDefinitions of Jobs, PodGroups, Queues and HyperNodes."""
    yield _definition(BATCH, "v1alpha1", "Job", ("vcjob", "vj"), _JOB_COLUMNS, namespaced=True)
    groups = ("pg", "podgroup-v1beta1")
    yield _definition(SCHEDULING, "v1beta1", "PodGroup", groups, _GROUP_COLUMNS, namespaced=True)
    queues = ("q", "queue-v1beta1")
    yield _definition(SCHEDULING, "v1beta1", "Queue", queues, _QUEUE_COLUMNS, namespaced=False)
    yield _definition(TOPOLOGY, "v1alpha1", "HyperNode", ("hn",), (), namespaced=False)


def _definition(
    group: str,
    version: str,
    kind: str,
    short: tuple[str, ...],
    columns: tuple[tuple[str, str, str], ...],
    *,
    namespaced: bool,
) -> Tree:
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": list(short),
    }
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": name, "type": type_, "jsonPath": path} for name, type_, path in columns
        ],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": anything, "status": anything},
            }
        },
    }
    meta: Tree = {"name": f"{plural}.{group}"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [served],
        },
    }
