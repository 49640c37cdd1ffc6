"""KAI-Scheduler's kinds on the embedded cluster, and NodeResourceTopology, which it reads: their
definitions.

The definitions have the fields of `apis/custom/kai_types.py`; that of NodeResourceTopology keeps
every field. Where KAI's are applied those serve.

Source: KAI-Scheduler, deployments/kai-scheduler/crds.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.controller_runtime.custom_kind import CustomKind
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.bind_request import RESERVATION_NAME

_QUEUE_COLUMNS = (
    ("Priority", "string", ".spec.priority"),
    ("Parent", "string", ".spec.parentQueue"),
    ("Children", "string", ".status.childQueues"),
    ("DisplayName", "string", ".spec.displayName"),
)
_GROUP_COLUMNS = (
    ("Queue", "string", ".spec.queue"),
    ("AGE", "date", ".metadata.creationTimestamp"),
)
_REQUEST_COLUMNS = (
    ("Node", "string", ".spec.selectedNode"),
    ("Phase", "string", ".status.phase"),
)
_KINDS = (
    CustomKind("scheduling.run.ai", "Queue", "queues", ("v2",), (), _QUEUE_COLUMNS,
        namespaced=False),
    CustomKind("scheduling.run.ai", "PodGroup", "podgroups", ("v2alpha2",), ("pg",),
        _GROUP_COLUMNS),
    CustomKind("scheduling.run.ai", "BindRequest", "bindrequests", ("v1alpha2",), (),
        _REQUEST_COLUMNS),
    CustomKind("kai.scheduler", "Topology", "topologies", ("v1alpha1",), (), (), namespaced=False),
    CustomKind("topology.node.k8s.io", "NodeResourceTopology", "noderesourcetopologies",
        ("v1alpha2",), ("node-res-topo",), namespaced=False,
        approval="unapproved, it keeps every field"),
)  # fmt: skip


def kai_definitions() -> Iterator[Tree]:
    """CustomResourceDefinitions of its kinds, and the namespace of pods that hold shared cards."""
    yield from (kind.definition() for kind in _KINDS)
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESERVATION_NAME}}
