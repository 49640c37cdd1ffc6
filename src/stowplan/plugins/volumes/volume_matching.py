"""Which existing volumes a claim can be bound to, and the changes of binding to both.

Source: Kubernetes v1.36, component-helpers storage/volume (pv_helpers.go).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from stowplan.objects.selectors import SelectorError, label_selector_matches
from stowplan.objects.storage import ObjectReference, PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.volumes.volume_claims import (
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    requested_size,
    size_nanos,
)

FILESYSTEM = "Filesystem"


class VolumeCandidates(msgspec.Struct, frozen=True):
    """The volumes that match a claim, whatever the node.

    prebound: those that name the claim; if there is one, only it is considered. others: the
    smallest first, then in order of arrival. fault: why the search fails; "" if it does not.

    Differs: among volumes of the same size the original takes any, in the order of a Go map.
    """

    prebound: tuple[PersistentVolume, ...] = ()
    others: tuple[PersistentVolume, ...] = ()
    fault: str = ""


def find_volume_candidates(
    claim: PersistentVolumeClaim,
    naming: Iterable[PersistentVolume],
    unclaimed: Iterable[PersistentVolume],
) -> VolumeCandidates:
    """The candidates among the volumes of the claim's class; raises QuantityError.

    naming: those whose claim reference has the name of this one. unclaimed: those without a claim.
    """
    wanted = size_nanos(requested_size(claim))
    try:
        if claim.spec.selector is not None:
            label_selector_matches(claim.spec.selector, {})
        prebound = [
            v
            for v in naming
            if is_volume_bound_to_claim(v, claim) and volume_satisfies_claim(v, claim, wanted)
        ]
        others = [
            v
            for v in unclaimed
            if volume_satisfies_claim(v, claim, wanted) and is_volume_available(v, claim)
        ]
    except SelectorError as fault:
        text = f"error creating internal label selector for claim: {claim.key}: {fault}"
        return VolumeCandidates(fault=text)
    others.sort(key=lambda volume: size_nanos(volume.spec.capacity.get("storage")))
    return VolumeCandidates(tuple(prebound), tuple(others))


def volume_satisfies_claim(
    volume: PersistentVolume, claim: PersistentVolumeClaim, wanted: int
) -> bool:
    """True when size, mode and attributes class match and the volume is not being deleted.

    wanted: the claim's size in billionths of a byte.
    """
    return (
        size_nanos(volume.spec.capacity.get("storage")) >= wanted
        and _volume_mode(volume) == _volume_mode(claim)
        and (volume.spec.volume_attributes_class_name or "")
        == (claim.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def _volume_mode(owner: PersistentVolume | PersistentVolumeClaim) -> str:
    return FILESYSTEM if owner.spec.volume_mode is None else owner.spec.volume_mode


def is_volume_available(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True when an unclaimed volume is available and the claim's selector and modes match."""
    selector = claim.spec.selector
    return (
        volume.status.phase == "Available"
        and (selector is None or label_selector_matches(selector, volume.labels))
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
    )


def is_volume_bound_to_claim(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True when the volume names the claim; a name without uid is enough (bound by hand)."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and (ref.namespace, ref.name) == (claim.namespace, claim.name)
        and ref.uid in ("", claim.metadata.uid)
    )


def volume_bound_to_claim(
    volume: PersistentVolume, claim: PersistentVolumeClaim
) -> PersistentVolume:
    """The volume after it names the claim; the volume itself if it already does."""
    meta, uid = claim.metadata, claim.metadata.uid
    ref, annotations = volume.spec.claim_ref, volume.metadata.annotations
    if not is_volume_bound_to_claim(volume, claim):
        annotations = {BOUND_BY_CONTROLLER_ANNOTATION: "yes"} | annotations
    if ref is None or (ref.namespace, ref.name, ref.uid) != (claim.namespace, claim.name, uid):
        ref = ObjectReference(
            api_version="v1",
            kind="PersistentVolumeClaim",
            namespace=claim.namespace,
            name=claim.name,
            uid=uid,
            resource_version=meta.resource_version,
        )
    if ref is volume.spec.claim_ref and annotations is volume.metadata.annotations:
        return volume
    return replace(
        volume,
        metadata=replace(volume.metadata, annotations=annotations),
        spec=replace(volume.spec, claim_ref=ref),
    )


def claim_with_selected_node(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    """The claim after a node is selected, for which its driver then provisions."""
    annotations = claim.metadata.annotations | {SELECTED_NODE_ANNOTATION: node_name}
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))
