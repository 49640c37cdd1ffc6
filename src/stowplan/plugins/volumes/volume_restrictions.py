"""VolumeRestrictions: disks and claims that two pods may not use at the same time.

Two rules. In-tree disks may not be mounted twice on a node, unless (except for AWS EBS) both mounts
are read-only. A claim with the access mode ReadWriteOncePod may have one pod in the cluster.

Source: kube-scheduler v1.36, plugins/volumerestrictions.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import (
    OK,
    SKIP,
    CycleState,
    NodeInfo,
    NodeTable,
    PodInfo,
    Rows,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.clusterevents import RegisteredEvents
from stowplan.framework.deciders.kernel_terms import KernelTerm
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolumeClaim
from stowplan.objects.volume import Volume
from stowplan.plugins.volumes.hints import volume_restrictions_events
from stowplan.plugins.volumes.volume_claims import (
    find_claim,
    has_storage,
    not_found_message,
    volume_uses_of,
)
from stowplan.plugins.volumes.volume_usage import VolumeUsage, disk_keys

READ_WRITE_ONCE_POD = "ReadWriteOncePod"
NO_STATE = error('cannot read "PreFilterVolumeRestrictions" from cycleState')


class ClaimConflicts:
    """Number of uses of the pod's ReadWriteOncePod claims; `names` are those claims."""

    def __init__(self, names: frozenset[str], uses: int) -> None:
        self.names = names
        self.uses = uses

    def clone(self) -> ClaimConflicts:
        """A copy that changes independently."""
        return ClaimConflicts(self.names, self.uses)

    def uses_by(self, pod: Pod) -> int:
        """Number of volumes of another pod that name one of the claims.

        As in the original the namespace does not count here, though it does in the first count.
        """
        return sum(name in self.names for name in volume_uses_of(pod.spec).named_claims)


class VolumeRestrictions:
    """Filter on disks in use on the node, and on claims in use anywhere."""

    name = "VolumeRestrictions"
    declaration = Plugin(
        name=name, reads=(PersistentVolumeClaim,), by_outline=True, repeatable=True
    )
    DISK_CONFLICT = unschedulable("node(s) had no available disk")
    CLAIM_CONFLICT = unschedulable(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
        " already in-use by another pod"
    )

    # The rule on disks, over two volumes.

    def conflicts(self, volume: Volume, other: Volume) -> bool:
        """True when both are the same disk and may not be mounted together on one node."""
        return (
            _same_gce(volume, other)
            or _same_aws(volume, other)
            or _same_iscsi(volume, other)
            or _same_rbd(volume, other)
        )

    def conflicts_with_pod(self, volume: Volume, pod: Pod) -> bool:
        """True when the volume conflicts with one of `pod`'s."""
        return any(self.conflicts(volume, other) for other in volume_uses_of(pod.spec).disks)

    # Before any node.

    def applies_to(self, pod: Pod) -> bool:
        """False for a pod without claims and disks."""
        return has_storage(pod)

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Count the uses of the pod's ReadWriteOncePod claims. Refuses a pod with a missing claim;
        Skip where neither rule can refuse a node."""
        if not pod.spec.volumes:
            return SKIP
        uses = volume_uses_of(pod.spec)
        names = set()
        for name in uses.named_claims:
            claim = find_claim(snapshot.object_store, pod, name)
            if claim is None:
                return unresolvable(not_found_message("persistentvolumeclaim", name))
            if READ_WRITE_ONCE_POD in claim.spec.access_modes:
                names.add(name)
        conflicts = ClaimConflicts(frozenset(names), 0)
        if names:
            used = VolumeUsage.of(snapshot.nodes).claims
            conflicts.uses = sum(f"{pod.namespace}/{name}" in used for name in names)
        if not uses.disks and conflicts.uses == 0:
            return SKIP
        state.write(self.name, conflicts)
        return OK

    def add_pod(self, info: PodInfo, state: CycleState) -> Status:
        """Count a pod that was added."""
        return self._change(info, state, 1)

    def remove_pod(self, info: PodInfo, state: CycleState) -> Status:
        """Stop counting a pod that was removed."""
        return self._change(info, state, -1)

    def _change(self, info: PodInfo, state: CycleState, sign: int) -> Status:
        conflicts: ClaimConflicts | None = state.find(self.name)
        if conflicts is None:
            return NO_STATE
        conflicts.uses += sign * conflicts.uses_by(info.pod)
        return OK

    # One node.

    def filter(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """Success where no disk is in use on the node and no claim anywhere."""
        for volume in volume_uses_of(pod.spec).disks:
            if any(self.conflicts_with_pod(volume, info.pod) for info in node.pods):
                return self.DISK_CONFLICT
        conflicts: ClaimConflicts | None = state.find(self.name)
        if conflicts is None:
            return NO_STATE
        return self.CLAIM_CONFLICT if conflicts.uses > 0 else OK

    # Every node.

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, 1 for a disk, 2 for a claim in use."""
        conflicts: ClaimConflicts | None = state.find(self.name)
        in_use = conflicts is None or conflicts.uses > 0
        codes = np.full(nodes.n_nodes, 2 if in_use else 0, dtype=np.int64)
        disks = volume_uses_of(pod.spec).disks
        if disks:
            use = VolumeUsage.of(nodes)
            for volume in disks:
                rows_in_question = {r for k in disk_keys(volume) for r in use.disks.get(k, ())}
                for row in rows_in_question:
                    if any(self.conflicts_with_pod(volume, info.pod) for info in use.pods[row]):
                        codes[row] = 1
        chosen: Ints = codes[rows]
        return chosen

    def filter_status(self, code: int, state: CycleState) -> Status:
        """The refusal of a code of `filter_column`."""
        if code == 1:
            return self.DISK_CONFLICT
        return NO_STATE if state.find(self.name) is None else self.CLAIM_CONFLICT

    def events_to_register(self) -> RegisteredEvents:
        """A pod frees a disk or a claim, or a node or a claim of the pod is added."""
        return volume_restrictions_events(self.conflicts_with_pod)

    def kernel_terms(self, pod: Pod) -> tuple[KernelTerm, ...] | None:
        """No rule where no disk may be in use; claims by `claims_signature` may be used by many."""
        return None if volume_uses_of(pod.spec).disks else ()

    def signature(self, pod: Pod) -> object:
        """The claims that the pod names, and its disks."""
        uses = volume_uses_of(pod.spec)
        names = uses.named_claims
        disks = tuple(
            (v.gce_persistent_disk, v.aws_elastic_block_store, v.iscsi, v.rbd) for v in uses.disks
        )
        return (pod.namespace, names, disks) if names or disks else ()


def _same_gce(volume: Volume, other: Volume) -> bool:
    a, b = volume.gce_persistent_disk, other.gce_persistent_disk
    if a is None or b is None:
        return False
    return a.pd_name == b.pd_name and not (a.read_only and b.read_only)


def _same_aws(volume: Volume, other: Volume) -> bool:
    a, b = volume.aws_elastic_block_store, other.aws_elastic_block_store
    return a is not None and b is not None and a.volume_id == b.volume_id


def _same_iscsi(volume: Volume, other: Volume) -> bool:
    a, b = volume.iscsi, other.iscsi
    if a is None or b is None:
        return False
    return a.iqn == b.iqn and not (a.read_only and b.read_only)


def _same_rbd(volume: Volume, other: Volume) -> bool:
    """True for the same image of the same pool with a common monitor."""
    a, b = volume.rbd, other.rbd
    if a is None or b is None or (a.pool, a.image) != (b.pool, b.image):
        return False
    return bool(set(a.monitors) & set(b.monitors)) and not (a.read_only and b.read_only)
