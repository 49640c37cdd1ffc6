"""Volcano's kinds on the embedded cluster: their paths and definitions.

The definitions have the fields of `apis/custom/volcano_types.py`, that of Commands every field, and
the columns of Volcano's own. Where Volcano's are applied those serve.

Source: volcano master of 2026-08-20, config/crd/volcano/bases.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.controller_runtime.custom_kind import CustomKind
from stowplan.objects.encoding.tree import Tree

BATCH, SCHEDULING, TOPOLOGY = "batch.volcano.sh", "scheduling.volcano.sh", "topology.volcano.sh"
BUS = "bus.volcano.sh"
BATCH_VERSION, SCHEDULING_VERSION = f"{BATCH}/v1alpha1", f"{SCHEDULING}/v1beta1"

VOLCANO_JOBS = f"{BATCH}/jobs"
VOLCANO_POD_GROUPS = f"{SCHEDULING}/podgroups"
VOLCANO_QUEUES = f"{SCHEDULING}/queues"
VOLCANO_COMMANDS = f"{BUS}/commands"

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
_WIDE_COLUMNS = (("QUEUE", "string", ".spec.queue"),)
_QUEUE_COLUMNS = (("PARENT", "string", ".spec.parent"),)
_HYPER_NODE_COLUMNS = (
    ("Tier", "string", ".spec.tier"),
    ("TierName", "string", ".spec.tierName"),
    ("NodeCount", "integer", ".status.nodeCount"),
    ("Age", "date", ".metadata.creationTimestamp"),
)

_KINDS = (
    CustomKind(
        BATCH, "Job", "jobs", ("v1alpha1",), ("vcjob", "vj"), _JOB_COLUMNS,
        wide_columns=_WIDE_COLUMNS,
    ),
    CustomKind(
        SCHEDULING, "PodGroup", "podgroups", ("v1beta1",), ("pg", "podgroup-v1beta1"),
        _GROUP_COLUMNS, wide_columns=_WIDE_COLUMNS,
    ),
    CustomKind(
        SCHEDULING, "Queue", "queues", ("v1beta1",), ("q", "queue-v1beta1"), _QUEUE_COLUMNS,
        namespaced=False,
    ),
    CustomKind(
        TOPOLOGY, "HyperNode", "hypernodes", ("v1alpha1",), ("hn",), _HYPER_NODE_COLUMNS,
        namespaced=False,
    ),
    CustomKind(BUS, "Command", "commands", ("v1alpha1",)),
)  # fmt: skip


def volcano_definitions() -> Iterator[Tree]:
    """CustomResourceDefinitions of Jobs, PodGroups, Queues, HyperNodes and Commands."""
    return (kind.definition() for kind in _KINDS)
