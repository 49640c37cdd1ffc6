"""MaxEBSVolumeCount, MaxGCEPDVolumeCount, MaxAzureDiskVolumeCount: disks attached to a node.

A claim that cannot be resolved to its volume counts as a disk of its own, of every kind.

Source: Kubernetes v1.13, predicates.MaxPDVolumeCountChecker and volume/util/attach_limit.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stowplan.framework import (
    OK,
    SKIP,
    CycleState,
    NodeInfo,
    ObjectStore,
    Snapshot,
    Status,
    error,
    unschedulable,
)
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, PVSpec
from stowplan.objects.volume import Volume
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.volumes.volume_claims import CLAIM_WITHOUT_NAME

INSTANCE_TYPE = "beta.kubernetes.io/instance-type"
ATTACHED_VOLUMES_STATE = "v1_13.attached"
"""CycleState key of the AttachedVolumeCount of the last predicate with volumes of its kind."""

# Searched for, not matched: t3 and z1d may be anywhere.
_NITRO = re.compile(r"^[cmr]5.*|t3|z1d")
_NITRO_LIMIT = 25


class VolumeCountArgs(PluginArgs, frozen=True):
    """attach_volume_limit: whether the node's attachable-volumes-* is its limit."""

    attach_volume_limit: bool = True


class UnnamedClaimError(ValueError):
    """A volume whose claim has no name; the text is the original's."""


class AttachedVolumeCount:
    """The pod's volumes of one kind. fault: why they cannot be counted, "" if they can."""

    def __init__(self, rule: _MaxVolumeCountPlugin, pod: Pod, object_store: ObjectStore) -> None:
        self.rule = rule
        self.fault = ""
        self.new: frozenset[str] = frozenset()
        self._object_store = object_store
        try:
            self.new = frozenset(rule.volumes_of([pod], object_store))
        except UnnamedClaimError as fault:
            self.fault = str(fault)

    def on(self, node: NodeInfo) -> tuple[int, int]:
        """(more volumes of the pod, how many more the node attaches); raises UnnamedClaimError."""
        there = self.rule.volumes_of((info.pod for info in node.pods), self._object_store)
        return len(self.new - there), self.rule.limit(node) - len(there)


class _MaxVolumeCountPlugin:
    """Filter on the number of distinct volumes of a kind."""

    name = ""
    reads = (PersistentVolume, PersistentVolumeClaim)
    SOURCE = ""
    IDENTITY = ""
    LIMIT_KEY = ""
    LIMIT = 0
    Args = VolumeCountArgs
    EXCEEDED = unschedulable("node(s) exceed max volume count")

    def __init__(self, args: VolumeCountArgs) -> None:
        self.args = args

    def default_limit(self, node: NodeInfo) -> int:
        """Limit of a node that declares none."""
        return self.LIMIT

    def limit(self, node: NodeInfo) -> int:
        """Number of volumes that a node attaches."""
        if self.args.attach_volume_limit and self.LIMIT_KEY in node.allocatable:
            return node.allocatable[self.LIMIT_KEY]
        return self.default_limit(node)

    def volumes_of(self, pods: Iterable[Pod], object_store: ObjectStore) -> set[str]:
        """The distinct volumes of the kind that pods use; raises UnnamedClaimError."""
        found: set[str] = set()
        for pod in pods:
            for volume in pod.spec.volumes:
                own = self._identity(volume)
                if own is not None:
                    found.add(own)
                elif volume.persistent_volume_claim is not None:
                    found |= self._of_claim(
                        volume.persistent_volume_claim.claim_name, pod, object_store
                    )
        return found

    def _of_claim(self, name: str, pod: Pod, object_store: ObjectStore) -> set[str]:
        if not name:
            raise UnnamedClaimError(CLAIM_WITHOUT_NAME)
        key = f"{pod.namespace}/{name}"
        claim = object_store.find(PersistentVolumeClaim, key)
        bound = "" if claim is None else claim.spec.volume_name
        volume = object_store.find(PersistentVolume, bound) if bound else None
        if volume is None:
            # Differs: the original draws a random prefix, so that no real volume can be the same.
            return {f"\0-{key}"}
        identity = self._identity(volume.spec)
        return set() if identity is None else {identity}

    def _identity(self, source: Volume | PVSpec) -> str | None:
        disk = getattr(source, self.SOURCE)
        return None if disk is None else str(getattr(disk, self.IDENTITY))

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Find the pod's volumes; Skip for a pod without any of the kind."""
        if not pod.spec.volumes:
            return SKIP
        counted = AttachedVolumeCount(self, pod, snapshot.object_store)
        if not counted.new and not counted.fault:
            return SKIP
        state.write(self.name, counted)
        state.write(ATTACHED_VOLUMES_STATE, counted)
        return OK

    def filter(self, node: NodeInfo, state: CycleState) -> Status:
        """Success where the node can attach the pod's volumes as well."""
        counted = state.read(self.name, AttachedVolumeCount)
        if counted.fault:
            return error(counted.fault)
        try:
            n_new, n_free = counted.on(node)
        except UnnamedClaimError as fault:
            return error(str(fault))
        return OK if n_new <= n_free else self.EXCEEDED

    def explain(self, node: NodeInfo, state: CycleState) -> list[str]:
        """Attached volumes with the pod, and the limit."""
        try:
            n_new, n_free = state.read(self.name, AttachedVolumeCount).on(node)
        except UnnamedClaimError as fault:
            return [str(fault)]
        return [f"{self.LIMIT_KEY}: needs {n_new} more, {n_free} of {self.limit(node)} free"]


class MaxEBSVolumeCount(_MaxVolumeCountPlugin):
    """Filter on the number of AWS EBS volumes: 39 per node, 25 on newer machines."""

    name = "MaxEBSVolumeCount"
    SOURCE = "aws_elastic_block_store"
    IDENTITY = "volume_id"
    LIMIT_KEY = "attachable-volumes-aws-ebs"
    LIMIT = 39

    def default_limit(self, node: NodeInfo) -> int:
        """Limit of a node that declares none."""
        is_nitro = _NITRO.search(node.labels.get(INSTANCE_TYPE, ""))
        return _NITRO_LIMIT if is_nitro else self.LIMIT


class MaxGCEPDVolumeCount(_MaxVolumeCountPlugin):
    """Filter on the number of GCE persistent disks: 16 per node."""

    name = "MaxGCEPDVolumeCount"
    SOURCE = "gce_persistent_disk"
    IDENTITY = "pd_name"
    LIMIT_KEY = "attachable-volumes-gce-pd"
    LIMIT = 16


class MaxAzureDiskVolumeCount(_MaxVolumeCountPlugin):
    """Filter on the number of Azure disks: 16 per node."""

    name = "MaxAzureDiskVolumeCount"
    SOURCE = "azure_disk"
    IDENTITY = "disk_name"
    LIMIT_KEY = "attachable-volumes-azure-disk"
    LIMIT = 16
