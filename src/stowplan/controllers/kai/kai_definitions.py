"""KAI-Scheduler's kinds on the embedded cluster: their definitions.

The definitions keep every field. Where KAI's are applied those serve.

Source: KAI-Scheduler, deployments/kai-scheduler/crds.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.controller_runtime.custom_kind import CustomKind
from stowplan.objects.encoding.tree import Tree

_QUEUE_COLUMNS = (
    ("Priority", "integer", ".spec.priority"),
    ("Parent", "string", ".spec.parentQueue"),
)
_GROUP_COLUMNS = (
    ("Queue", "string", ".spec.queue"),
    ("AGE", "date", ".metadata.creationTimestamp"),
)
_KINDS = (
    CustomKind("scheduling.run.ai", "Queue", "queues", ("v2",), (), _QUEUE_COLUMNS,
        namespaced=False),
    CustomKind("scheduling.run.ai", "PodGroup", "podgroups", ("v2alpha2",), (), _GROUP_COLUMNS),
    CustomKind("kai.scheduler", "Topology", "topologies", ("v1alpha1",), (), (), namespaced=False),
)  # fmt: skip


def kai_definitions() -> Iterator[Tree]:
    """CustomResourceDefinitions of Queues, PodGroups and Topologies."""
    return (kind.definition() for kind in _KINDS)
