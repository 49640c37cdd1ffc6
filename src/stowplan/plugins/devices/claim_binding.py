"""Claims of a pod that is being bound: assumed at Reserve, written at PreBind.

A claim gets the finalizer that keeps it until its devices are released, then its allocation and the
reservation for the pod in one write of its status.

Unproved: recorded answers end where a node is chosen; this was read off the source.

Source: kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go (Reserve, Unreserve,
bindClaim, isPodReadyForBinding).
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from stowplan.framework import (
    OK,
    Code,
    ObjectChange,
    ObjectStore,
    PreBindWait,
    Status,
    error,
)
from stowplan.objects.devices.device_claim import (
    CLAIM_FINALIZER,
    AllocationResult,
    ConsumerReference,
    ResourceClaim,
    ResourceClaimStatus,
)
from stowplan.objects.pod import Pod
from stowplan.plugins.devices.binding_conditions import (
    DeviceBindingFailed,
    has_binding_conditions,
    is_ready_for_binding,
)
from stowplan.plugins.devices.claim_allocation import GENERATED_SHARE_ID
from stowplan.plugins.devices.extended_resources import RequestMapping

CONDITIONS_PENDING = "BindingConditionsPending"
"""Reason of the event of a pod whose devices are waited for."""
TIMED_OUT = "device binding timeout"
FAILED = "device binding failed"
"""How the messages of devices that do not become ready begin."""

_WAIT = Status(Code.WAIT)
NO_CLAIMS: Mapping[str, ResourceClaim] = MappingProxyType({})


class SpecialClaim(msgspec.Struct, frozen=True):
    """The pod that a claim for extended resources is created for, and what its requests are for."""

    pod: Pod
    mappings: tuple[RequestMapping, ...]


class AssumedResourceClaim(msgspec.Struct, frozen=True):
    """A claim before and after the pod has it. is_allocated: by this pod, or by a member of its
    group in the same cycle, not before. consumer: whom it is reserved for. special: for a claim
    that is created for the extended resources of a pod, else None."""

    before: ResourceClaim
    after: ResourceClaim
    is_allocated: bool
    consumer: ConsumerReference
    special: SpecialClaim | None = None


class PendingAllocations:
    """Allocations that are not written yet, by claim, with the number of pods that share each: the
    members of a group that were placed in one cycle."""

    def __init__(self) -> None:
        self._shared: dict[str, tuple[ResourceClaim, int]] = {}

    def add(self, after: ResourceClaim, object_store: ObjectStore) -> None:
        """A pod uses an allocation; the first one shows it to others."""
        known = self._shared.get(after.key)
        if known is not None and is_pending(after.key, object_store):
            self._shared[after.key] = known[0], known[1] + 1
            return
        self._shared[after.key] = after, 1
        # The version with the finalizer is shown before the one with the allocation.
        if after.metadata.uid or after.metadata.resource_version:
            object_store.assume(after, _has_allocation)
        else:
            object_store.assume_new(after, _has_allocation)

    def drop(self, key: str, object_store: ObjectStore) -> None:
        """A pod does not use it any more. It ends with the last one, unless it was written."""
        known = self._shared.get(key)
        if known is None:
            return
        after, n_sharing = known
        if n_sharing > 1 and is_pending(key, object_store):
            self._shared[key] = after, n_sharing - 1
            return
        del self._shared[key]
        object_store.restore(after)

    def written(self, key: str) -> None:
        """An allocation was written: it is the claim's, and no longer of those that share it."""
        self._shared.pop(key, None)


def is_pending(key: str, object_store: ObjectStore) -> bool:
    """True for a claim whose allocation is decided and not written."""
    claim = object_store.find(ResourceClaim, key)
    observed = object_store.observed(ResourceClaim, key)
    return (
        claim is not None
        and observed is not None
        and claim.status.allocation is not None
        and observed.status.allocation is None
    )


class AssumedClaims(msgspec.Struct, frozen=True):
    """The claims that have to be written before the pod is bound. group: whose claims the pod may
    use, "" for none."""

    claims: tuple[AssumedResourceClaim, ...] = ()
    group: str = ""

    @property
    def is_empty(self) -> bool:
        """True where all claims are allocated, reserved for the pod and ready."""
        return not self.claims

    def apply(self, pending: PendingAllocations, object_store: ObjectStore) -> None:
        """Show the allocations to other pods."""
        for claim in self.claims:
            if claim.is_allocated:
                pending.add(claim.after, object_store)

    def revert(self, pending: PendingAllocations, object_store: ObjectStore) -> None:
        """End the assumptions that no other pod shares."""
        for claim in self.claims:
            if claim.is_allocated:
                pending.drop(claim.after.key, object_store)

    def drivers(self, *, with_conditions: bool) -> list[str]:
        """The driver of each allocated device. with_conditions: of those that must report that they
        are ready."""
        return [
            one.driver
            for claim in self.claims
            if claim.after.status.allocation is not None
            for one in claim.after.status.allocation.devices.results
            if one.binding_conditions or not with_conditions
        ]

    def changes(self, now: datetime.datetime | None) -> tuple[ObjectChange, ...]:
        """The writes in their order. now: time of the allocation, None to leave it out."""
        return tuple(change for claim in self.claims for change in _changes(claim, now))


def _has_allocation(claim: ResourceClaim) -> bool:
    return claim.status.allocation is not None


def _changes(claim: AssumedResourceClaim, now: datetime.datetime | None) -> list[ObjectChange]:
    after, changes = claim.after, []
    if after is claim.before:
        return []
    if claim.special is not None:
        return _special_changes(claim, claim.special, now)
    status: dict[str, Any] = {"reservedFor": msgspec.to_builtins(after.status.reserved_for)}
    if claim.is_allocated:
        if CLAIM_FINALIZER not in claim.before.metadata.finalizers:
            patch = {"metadata": {"finalizers": list(after.metadata.finalizers)}}
            with_finalizer = msgspec.structs.replace(after, status=claim.before.status)
            changes.append(ObjectChange(with_finalizer, patch))
        status["allocation"] = _allocation_tree(after, now)
    changes.append(ObjectChange(after, {"status": status}))
    return changes


def _allocation_tree(after: ResourceClaim, now: datetime.datetime | None) -> Any:
    allocation = after.status.allocation
    if now is not None and allocation is not None:
        allocation = msgspec.structs.replace(allocation, allocation_timestamp=now)
    return msgspec.to_builtins(allocation)


def _special_changes(
    claim: AssumedResourceClaim, special: SpecialClaim, now: datetime.datetime | None
) -> list[ObjectChange]:
    """Create the claim, write its status, and note it in the status of the pod."""
    after, pod = claim.after, special.pod
    meta = after.metadata
    content = {
        "metadata": {
            "name": meta.name,
            "namespace": after.namespace,
            "annotations": meta.annotations,
            "ownerReferences": msgspec.to_builtins(meta.owner_references),
            "finalizers": list(meta.finalizers),
        },
        "spec": msgspec.to_builtins(after.spec),
    }
    status = {
        "reservedFor": msgspec.to_builtins(after.status.reserved_for),
        "allocation": _allocation_tree(after, now),
    }
    noted = {
        "resourceClaimName": meta.name,
        "requestMappings": msgspec.to_builtins(special.mappings),
    }
    # Other writes to the pod's status are no conflict.
    anyone = msgspec.structs.replace(pod.metadata, resource_version="")
    without = msgspec.structs.replace(after, status=ResourceClaimStatus())
    return [
        ObjectChange(without, content),
        ObjectChange(after, {"status": status}),
        ObjectChange(
            msgspec.structs.replace(pod, metadata=anyone),
            {"status": {"extendedResourceClaimStatus": noted}},
        ),
    ]


def deleted_claim(claim: ResourceClaim) -> tuple[ObjectChange, ...]:
    """The writes that delete a claim: its finalizer keeps it while it is allocated."""
    left = tuple(one for one in claim.metadata.finalizers if one != CLAIM_FINALIZER)
    # The two may arrive in any order.
    metadata = msgspec.structs.replace(claim.metadata, finalizers=left, resource_version="")
    without = msgspec.structs.replace(claim, metadata=metadata)
    patch = {"metadata": {"finalizers": list(left) or None}}
    return ObjectChange(without, patch), ObjectChange(without, {})


def special_claim(
    pod: Pod, made: ResourceClaim, result: AllocationResult, mappings: Sequence[RequestMapping]
) -> AssumedResourceClaim:
    """What becomes of a claim that is created for the extended resources of a pod."""
    own = ConsumerReference("", "pods", pod.name, pod.uid)
    allocation = _with_share_ids(result, f"{pod.uid}/{made.key}")
    metadata = msgspec.structs.replace(made.metadata, finalizers=(CLAIM_FINALIZER,))
    status = ResourceClaimStatus(allocation, (own,))
    after = msgspec.structs.replace(made, metadata=metadata, status=status)
    return AssumedResourceClaim(made, after, True, own, SpecialClaim(pod, tuple(mappings)))


def assume_claims(
    pod: Pod,
    claims: Sequence[ResourceClaim],
    results: Sequence[AllocationResult],
    consumers: Sequence[ConsumerReference] = (),
    shared: Mapping[str, ResourceClaim] = NO_CLAIMS,
    group: str = "",
) -> AssumedClaims:
    """What becomes of the claims. results: for those without an allocation, in order. consumers:
    whom each is reserved for; empty: the pod. shared: key of a claim that a member of the group has
    allocated in this cycle -> the claim without that; `results` has them, too. group: name of the
    group whose claims the pod may use."""
    own = ConsumerReference("", "pods", pod.name, pod.uid)
    left = list(results)
    assumed: list[AssumedResourceClaim] = []
    for index, visible in enumerate(claims):
        claim = shared.get(visible.key, visible)
        consumer = consumers[index] if index < len(consumers) else own
        status, metadata = claim.status, claim.metadata
        allocation = status.allocation
        is_allocated = allocation is None
        if is_allocated:
            allocation = _with_share_ids(left.pop(0), f"{pod.uid}/{claim.key}/{index}")
            finalizers = metadata.finalizers
            if CLAIM_FINALIZER not in finalizers:
                finalizers = (*finalizers, CLAIM_FINALIZER)
            metadata = msgspec.structs.replace(metadata, finalizers=finalizers)
        elif _is_reserved(claim, pod, group) and not has_binding_conditions(claim):
            continue
        users = status.reserved_for
        if not _is_reserved(claim, pod, group):
            users = (*users, consumer)
        new = ResourceClaimStatus(allocation, users, status.devices)
        after = msgspec.structs.replace(claim, metadata=metadata, status=new)
        assumed.append(AssumedResourceClaim(claim, after, is_allocated, consumer))
    return AssumedClaims(tuple(assumed), group)


def _is_reserved(claim: ResourceClaim, pod: Pod, group: str) -> bool:
    """True where the claim is reserved for the pod, or for the group of this name, "" for none."""
    return claim.is_reserved_for(pod.uid) or (group != "" and claim.is_reserved_for_group(group))


def assume_again(
    pod: Pod, reserved: AssumedClaims, object_store: ObjectStore, *, repeats: bool = False
) -> AssumedClaims | Status:
    """The claims on the versions that the watch shows, after another client has changed one; an
    error where one is not to be had any more. repeats: a reservation is added even where it stands
    already, and an allocation that a mate has written is none of the pod's.

    Differs: in the original it is so always, so that of the members of a group that share a claim
    all but one fail in the cycle that allocates it; here with `compat` only.
    """
    assumed = []
    for one in reserved.claims:
        claim = object_store.observed(ResourceClaim, one.after.key)
        if claim is None:
            return error(f'could not find ResourceClaim "{one.after.key}"')
        if claim.metadata.deletion_timestamp is not None:
            return error(f"claim {claim.key} got deleted in the meantime")
        allocation, is_allocated = claim.status.allocation, one.is_allocated
        if is_allocated and allocation is not None:
            if repeats or not _are_same_devices(allocation, one.after.status.allocation):
                return error(f"claim {claim.key} got allocated elsewhere in the meantime")
            is_allocated = False
        if not is_allocated and allocation is None:
            return error(f"claim {claim.key} got deallocated elsewhere in the meantime")
        has_place = _is_reserved(claim, pod, reserved.group)
        if has_place and not is_allocated and not repeats:
            # Nothing to write: a member of the group has written all of it.
            assumed.append(AssumedResourceClaim(claim, claim, False, one.consumer))
            continue
        users = claim.status.reserved_for
        if repeats or not has_place:
            users = (*users, one.consumer)
        metadata = one.after.metadata if is_allocated else claim.metadata
        metadata = msgspec.structs.replace(
            metadata, resource_version=claim.metadata.resource_version
        )
        kept = one.after.status.allocation if is_allocated else allocation
        status = ResourceClaimStatus(kept, users, claim.status.devices)
        after = msgspec.structs.replace(claim, metadata=metadata, status=status)
        assumed.append(AssumedResourceClaim(claim, after, is_allocated, one.consumer))
    return AssumedClaims(tuple(assumed), reserved.group)


def binding_wait(
    reserved: AssumedClaims,
    node_name: str,
    now: datetime.datetime | None,
    timeout: datetime.timedelta,
) -> PreBindWait:
    """The writes of the claims, and the wait for their devices. now: time of the allocation."""
    event: tuple[str, str] | tuple[()] = ()
    if reserved.drivers(with_conditions=True):
        note = f"waiting for binding conditions for device on node {node_name}"
        event = CONDITIONS_PENDING, note
    return PreBindWait(reserved.changes(now), timeout.total_seconds(), TIMED_OUT, event)


def _are_same_devices(one: AllocationResult, other: AllocationResult | None) -> bool:
    """True for the same devices for the same requests, usable on the same nodes."""
    return (
        other is not None
        and one.node_selector == other.node_selector
        and one.devices.results == other.devices.results
    )


def released_claim(claim: ResourceClaim, group: str = "") -> ObjectChange:
    """The claim without its devices; of a group: only without the reservation for the group of
    this uid."""
    if group:
        users = tuple(one for one in claim.status.reserved_for if one.uid != group)
        status = msgspec.structs.replace(claim.status, reserved_for=users)
        patch: dict[str, Any] = {"reservedFor": msgspec.to_builtins(users)}
    else:
        status = ResourceClaimStatus()
        patch = {"reservedFor": None, "allocation": None, "devices": None}
    return ObjectChange(msgspec.structs.replace(claim, status=status), {"status": patch})


def _with_share_ids(allocation: AllocationResult, seed: str) -> AllocationResult:
    """The allocation with a share ID for each share of a device.

    Differs: the original's IDs are random; ours follow from pod and claim, so that a decision that
    is repeated gives the same.
    """
    results = []
    for index, one in enumerate(allocation.devices.results):
        if one.share_id == GENERATED_SHARE_ID:
            digest = hashlib.sha256(f"{seed}/{index}".encode()).hexdigest()
            parts = (digest[:8], digest[8:12], f"4{digest[13:16]}", f"8{digest[17:20]}",
                     digest[20:32])  # fmt: skip
            one = msgspec.structs.replace(one, share_id="-".join(parts))
        results.append(one)
    devices = msgspec.structs.replace(allocation.devices, results=tuple(results))
    return msgspec.structs.replace(allocation, devices=devices)


def check_claims(pod: Pod, reserved: AssumedClaims, object_store: ObjectStore) -> Status:
    """Success when every claim is the pod's and its devices are ready; Wait until then."""
    for assumed in reserved.claims:
        key = assumed.after.key
        claim = object_store.observed(ResourceClaim, key)
        if claim is None:
            return error(f'could not find ResourceClaim "{key}"')
        if claim.status.allocation is None:
            return error(f"claim {key} got deallocated elsewhere in the meantime")
        if not _is_reserved(claim, pod, reserved.group):
            return _WAIT
        try:
            if not is_ready_for_binding(claim):
                return _WAIT
        except DeviceBindingFailed as fault:
            return error(str(fault))
    return OK
