"""How a pod names its volumes, and the state of a claim and a volume.

Source: kube-scheduler v1.36, plugins/volumebinding; component-helpers storage/volume and
storage/ephemeral.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter

import msgspec

from stowplan.framework import ObjectStore, error
from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.pod_templates import common_spec_of, kept_claim_names
from stowplan.objects.quantity import Quantity, exact
from stowplan.objects.storage import (
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from stowplan.objects.volume import Volume
from stowplan.plugins.volumes.csi_translation import in_tree_plugin_of

BETA_STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED_ANNOTATION = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER_ANNOTATION = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"

_DISKS = attrgetter("gce_persistent_disk", "aws_elastic_block_store", "iscsi", "rbd")
_NO_DISKS = (None, None, None, None)
_KEPT, _KEPT_FORM = "volumes.uses", "volumes.form"

CLAIM_WITHOUT_NAME = "PersistentVolumeClaim had no name"
NO_STATE = error("not found")
"""The error of a plugin whose PreFilter wrote no state; Kubernetes' ErrNotFound."""


class ClaimUse(msgspec.Struct, frozen=True, gc=False):
    """A volume of a pod that is backed by a claim.

    name: of the claim; of the volume for an ephemeral one, whose claim is generated
    (`is_ephemeral`).
    """

    name: str
    is_ephemeral: bool = False

    def claim_name(self, pod: Pod) -> str:
        """The claim's name."""
        return f"{pod.name}-{self.name}" if self.is_ephemeral else self.name


class VolumeUses(msgspec.Struct, frozen=True, gc=False):
    """What the volume plugins read of a pod's volumes, in the order of the spec.

    claims: all volumes that are backed by a claim. named_claims: names of those that are not
    generated. disks: the in-tree disks that two pods may not share. attachable: what a CSI driver
    may have to attach: the claims, and migrated in-tree volumes. is_delicate: counting these may
    fail: a claim may be another pod's or have no name, and an in-tree volume may have no CSI
    equivalent.
    """

    claims: tuple[ClaimUse, ...] = ()
    named_claims: tuple[str, ...] = ()
    disks: tuple[Volume, ...] = ()
    attachable: tuple[ClaimUse | Volume, ...] = ()
    is_delicate: bool = False


NO_VOLUMES = VolumeUses()


class VolumeForm(msgspec.Struct, frozen=True, gc=False):
    """What `VolumeUses` says beside the names of claims: pods of a template have it in common.

    n_attachable: of `attachable`. has_disks: whether there are `disks`. is_delicate: as
    there. claims_only: whether all of it are claims that are not generated.
    """

    n_attachable: int = 0
    has_disks: bool = False
    is_delicate: bool = False
    claims_only: bool = False


NO_FORM = VolumeForm()


def volume_uses_of(spec: PodSpec) -> VolumeUses:
    """What plugins read of `spec.volumes`; cached per spec."""
    if not spec.volumes:
        return NO_VOLUMES
    kept: VolumeUses | None = spec.__dict__.get(_KEPT)
    if kept is None:
        kept = spec.__dict__[_KEPT] = _uses(spec)
    return kept


def named_claims_of(spec: PodSpec) -> tuple[str, ...]:
    """See `VolumeUses.named_claims`."""
    names = kept_claim_names(spec)
    return volume_uses_of(spec).named_claims if names is None else names


def volume_form_of(spec: PodSpec) -> VolumeForm:
    """What plugins read of `spec.volumes` beside the names of claims; cached for all specs that
    differ in these."""
    if not spec.volumes:
        return NO_FORM
    kept_on = common_spec_of(spec).__dict__
    kept: VolumeForm | None = kept_on.get(_KEPT_FORM)
    if kept is None:
        uses = volume_uses_of(spec)
        n_claims = len(uses.named_claims)
        # Not of the common spec: that names no claim, where all others do.
        kept = kept_on[_KEPT_FORM] = VolumeForm(
            len(uses.attachable),
            bool(uses.disks),
            is_delicate=uses.is_delicate,
            claims_only=0 < n_claims == len(uses.attachable) and not uses.disks,
        )
    return kept


def has_storage(pod: Pod) -> bool:
    """True for a pod with volumes that a volume plugin reads."""
    uses = volume_uses_of(pod.spec)
    return bool(uses.claims or uses.disks or uses.attachable)


def _uses(spec: PodSpec) -> VolumeUses:
    attachable: list[ClaimUse | Volume] = []
    claims: list[ClaimUse] = []
    named: list[str] = []
    disks: list[Volume] = []
    is_delicate = False
    for volume in spec.volumes:
        source = volume.persistent_volume_claim
        if source is not None:
            named.append(source.claim_name)
            is_delicate |= not source.claim_name
            use = ClaimUse(source.claim_name)
        elif volume.ephemeral is not None:
            is_delicate = True
            use = ClaimUse(volume.name, is_ephemeral=True)
        else:
            use = None
        if use is not None:
            claims.append(use)
            attachable.append(use)
        elif in_tree_plugin_of(volume) is not None:
            is_delicate = True
            attachable.append(volume)
        if _DISKS(volume) != _NO_DISKS:
            disks.append(volume)
    backed = tuple(claims)
    all_of_them = backed if len(backed) == len(attachable) else tuple(attachable)
    return VolumeUses(backed, tuple(named), tuple(disks), all_of_them, is_delicate)


def claims_signature(pod: Pod) -> object:
    """What the claim plugins read of a pod: pods with the same claims have equal signatures."""
    claims = volume_uses_of(pod.spec).claims
    if not claims:
        return ()
    # A generated claim must belong to that very pod.
    owner = pod.uid if any(use.is_ephemeral for use in claims) else ""
    return pod.namespace, tuple(use.claim_name(pod) for use in claims), owner


def find_claim(object_store: ObjectStore, pod: Pod, name: str) -> PersistentVolumeClaim | None:
    """A claim of the pod's namespace, None when there is none."""
    return object_store.find(PersistentVolumeClaim, f"{pod.namespace}/{name}")


def ownership_error(pod: Pod, claim: PersistentVolumeClaim) -> str:
    """Why a generated claim is not this pod's; "" when it is."""
    owner = claim.controller
    if owner is not None and owner.uid == pod.uid:
        return ""
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def not_found_message(kind: str, name: str) -> str:
    """The original's text for an object that does not exist."""
    return f'{kind} "{name}" not found'


def storage_class_of(owner: PersistentVolumeClaim | PersistentVolume) -> str:
    """The storage class of a claim or a volume: the beta annotation wins; "" for none."""
    annotated = owner.metadata.annotations.get(BETA_STORAGE_CLASS_ANNOTATION)
    return (owner.spec.storage_class_name or "") if annotated is None else annotated


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """True when the claim has a volume and the binding is complete on both sides."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED_ANNOTATION in claim.metadata.annotations


def waits_for_first_consumer(
    object_store: ObjectStore, claim: PersistentVolumeClaim
) -> bool | None:
    """True when the claim's class waits for the first consumer; None when the class has no mode."""
    name = storage_class_of(claim)
    storage_class = object_store.find(StorageClass, name) if name else None
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        return None
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def binding_mode_missing_message(name: str) -> str:
    """The text for a storage class without a volume binding mode."""
    return f'VolumeBindingMode not set for StorageClass "{name}"'


@lru_cache(maxsize=1 << 12, typed=True)
def size_nanos(quantity: Quantity | None) -> int:
    """A size in billionths of a byte, without loss, so that sizes compare exactly. Raises
    QuantityError."""
    if quantity is None:
        return 0
    held = exact(quantity)
    if held.unscaled == 0:
        return 0
    scale: int = 10 ** (held.exponent + 9)
    return held.unscaled * scale


def volume_limit(capacity: CSIStorageCapacity) -> Quantity | None:
    """The size of the largest volume that can be provisioned; the more exact of both figures."""
    largest = capacity.maximum_volume_size
    return capacity.capacity if largest is None else largest


def requested_size(claim: PersistentVolumeClaim) -> Quantity | None:
    """The storage request of a claim, None where it has none."""
    return claim.spec.resources.requests.get("storage")
