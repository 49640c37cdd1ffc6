"""NoDiskConflict: in-tree disks that two pods of a node may not share.

Source: Kubernetes v1.13, predicates.NoDiskConflict.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.framework import OK, SKIP, NodeInfo, NodeTable, Rows, Status, unschedulable
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.plugins.volumes.volume_claims import volume_uses_of
from stowplan.plugins.volumes.volume_restrictions import VolumeRestrictions
from stowplan.plugins.volumes.volume_usage import VolumeUsage, disk_keys


class NoDiskConflict:
    """Filter on disks in use on the node, by the rule of VolumeRestrictions."""

    name = "NoDiskConflict"
    declaration = Plugin(name=name, reads=())
    REJECTED = unschedulable("node(s) had no available disk")

    def __init__(self) -> None:
        self._rule = VolumeRestrictions()

    def pre_filter(self, pod: Pod) -> Status:
        """Skip for a pod without such disks."""
        return OK if volume_uses_of(pod.spec).disks else SKIP

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where none of the pod's disks is in use, unless both uses only read."""
        for volume in volume_uses_of(pod.spec).disks:
            if any(self._rule.conflicts_with_pod(volume, info.pod) for info in node.pods):
                return self.REJECTED
        return OK

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        passes = np.ones(nodes.n_nodes, dtype=np.bool_)
        use = VolumeUsage.of(nodes)
        for volume in volume_uses_of(pod.spec).disks:
            for row in {r for key in disk_keys(volume) for r in use.disks.get(key, ())}:
                if any(self._rule.conflicts_with_pod(volume, info.pod) for info in use.pods[row]):
                    passes[row] = False
        chosen: Bools = passes[rows]
        return chosen

    def signature(self, pod: Pod) -> object:
        """The disks."""
        return tuple(
            (v.gce_persistent_disk, v.aws_elastic_block_store, v.iscsi, v.rbd)
            for v in volume_uses_of(pod.spec).disks
        )
