"""MaxCSIVolumeCountPred: CSI volumes attached to a node, limited by its allocatable per driver.

Source: Kubernetes v1.13, predicates/csi_volume_predicate.go and volume/util/attach_limit.go.
"""

from __future__ import annotations

import hashlib
from collections import Counter
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
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.v1_13.predicates.max_pd_volume_count import UnnamedClaimError, VolumeCountArgs
from stowplan.plugins.volumes.volume_claims import CLAIM_WITHOUT_NAME

LIMIT_PREFIX = "attachable-volumes-"
CSI_PREFIX = f"{LIMIT_PREFIX}csi-"

_KEY_LENGTH_MAX = 63
_DRIVER_KEPT = 23
_HASH_KEPT = 16

CSIVolumeDrivers = dict[str, str]
"""Volume handle -> the key of its driver's limit."""


class MaxCSIVolumeCountPred:
    """Filter on the number of CSI volumes behind claims. A driver without a limit has none."""

    name = "MaxCSIVolumeCountPred"
    declaration = Plugin(name=name, reads=(PersistentVolume, PersistentVolumeClaim))
    Args = VolumeCountArgs
    EXCEEDED = unschedulable("node(s) exceed max volume count")

    def __init__(self, args: VolumeCountArgs) -> None:
        self.args = args

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Skip for a pod without claims, and where limits are not checked."""
        claims = any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)
        if not (claims and self.args.attach_volume_limit):
            return SKIP
        state.write(self.name, snapshot.object_store)
        return OK

    def filter(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """Success where every driver can attach the pod's volumes as well."""
        limits = {k: v for k, v in node.allocatable.items() if k.startswith(LIMIT_PREFIX)}
        if not limits:
            return OK
        object_store = state.read(self.name, ObjectStore)
        try:
            new = attached_csi_volumes([pod], object_store)
            there = (
                attached_csi_volumes((info.pod for info in node.pods), object_store) if new else {}
            )
        except UnnamedClaimError as fault:
            return error(str(fault))
        n_there = Counter(there.values())
        coming = Counter(key for handle, key in new.items() if handle not in there)
        exceeded = any(k in limits and n_there[k] + n > limits[k] for k, n in coming.items())
        return self.EXCEEDED if exceeded else OK


def attached_csi_volumes(pods: Iterable[Pod], object_store: ObjectStore) -> CSIVolumeDrivers:
    """The CSI volumes of the claims of pods; claims that cannot be resolved do not count.

    Raises UnnamedClaimError.
    """
    found: CSIVolumeDrivers = {}
    for pod in pods:
        for volume in pod.spec.volumes:
            use = volume.persistent_volume_claim
            if use is None:
                continue
            if not use.claim_name:
                raise UnnamedClaimError(CLAIM_WITHOUT_NAME)
            claim = object_store.find(PersistentVolumeClaim, f"{pod.namespace}/{use.claim_name}")
            bound = "" if claim is None else claim.spec.volume_name
            there = object_store.find(PersistentVolume, bound) if bound else None
            if there is not None and there.spec.csi is not None:
                found[there.spec.csi.volume_handle] = limit_key(there.spec.csi.driver)
    return found


def limit_key(driver: str) -> str:
    """The resource name of a driver's attachable volumes; long names are shortened."""
    name = driver.encode()
    if len(CSI_PREFIX) + len(name) < _KEY_LENGTH_MAX:
        return CSI_PREFIX + driver
    digest = hashlib.sha1(name, usedforsecurity=False).hexdigest()
    return CSI_PREFIX + name[:_DRIVER_KEPT].decode(errors="replace") + digest[:_HASH_KEPT]
