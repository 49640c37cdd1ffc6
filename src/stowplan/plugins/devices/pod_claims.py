"""The claims that a pod names: which they are, whom they are reserved for, what is wrong with them.

Source: kube-scheduler v1.36, plugins/dynamicresources; dynamic-resource-allocation resourceclaim.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stowplan.framework import ObjectStore, Status, error, unresolvable
from stowplan.objects.devices.device_claim import ConsumerReference, ResourceClaim
from stowplan.objects.meta import OwnerReference
from stowplan.objects.pod import Pod, PodResourceClaim
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.plugins.devices.pools.cluster_devices import ClusterDevices


def claim_fault(
    claim: ResourceClaim, object_store: ObjectStore, devices: ClusterDevices
) -> Status | None:
    """Why a claim cannot be allocated on any node, None where it may."""
    key = claim.key
    observed = object_store.observed(ResourceClaim, key)
    in_flight = observed is not None and observed.status.allocation is None
    if claim.status.allocation is not None:
        if not in_flight:
            return None
        return unresolvable(f"resource claim {key} is in the process of being allocated")
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            named = [(request.name, request.exactly.device_class_name)]
        elif request.first_available:
            named = [
                (f"{request.name}/{one.name}", one.device_class_name)
                for one in request.first_available
            ]
        else:
            text = f"resource claim {key}, request {request.name}: unknown request type"
            return unresolvable(text)
        for name, class_name in named:
            if not class_name:
                return error(f"request {name}: unsupported request type")
            if class_name not in devices.classes:
                return unresolvable(f"request {name}: device class {class_name} does not exist")
    return None


def resource_claim_name_of(pod: Pod, use: PodResourceClaim) -> str | Status | None:
    """The claim of an entry of the pod: None where none is needed, or a refusal."""
    if use.resource_claim_name is not None:
        return use.resource_claim_name
    if use.resource_claim_template_name is None:
        text = f'pod "{pod.key}", spec.resourceClaim "{use.name}"'
        return unresolvable(f"{text}: none of the supported fields are set")
    for made in pod.status.resource_claim_statuses:
        if made.name == use.name:
            return made.resource_claim_name
    return unresolvable(f'pod "{pod.key}": ResourceClaim not created yet')


def releases_devices(old: ResourceClaim | None, new: ResourceClaim) -> bool:
    """True for a claim that has lost its devices."""
    return old is not None and old.status.allocation is not None and new.status.allocation is None


def changed_claim(old: ResourceClaim | None, new: ResourceClaim) -> str | None:
    """Key of a claim whose change concerns only pods that name it; None for one that has lost its
    devices."""
    return None if releases_devices(old, new) else new.key


def named_claims(pod: Pod) -> Iterator[str]:
    """Keys of the claims that the entries of a pod are about, whether they are its own or not."""
    for use in pod.spec.resource_claims:
        name = resource_claim_name_of(pod, use)
        if isinstance(name, str):
            yield f"{pod.namespace}/{name}"


def names_claim(pod: Pod, claim: ResourceClaim) -> bool:
    """True where an entry of the pod is about a claim of this name, its own or not."""
    return claim.namespace == pod.namespace and any(
        resource_claim_name_of(pod, use) == claim.name for use in pod.spec.resource_claims
    )


def _is_of_group(owner: OwnerReference | None, name: str) -> bool:
    """True for an owner that is the group of this name."""
    return (
        owner is not None
        and owner.kind == "PodGroup"
        and owner.name == name
        and owner.api_version.startswith("scheduling.k8s.io/")
    )


def usable_anywhere(claim: ResourceClaim) -> ResourceClaim:
    """The claim as if its allocation could be used on every node.

    Differs: so the original takes an allocation that another member of the group has pending, and
    binds members where the devices are not; here with `compat` only.
    """
    if claim.status.allocation is None:
        return claim
    allocation = msgspec.structs.replace(claim.status.allocation, node_selector=None)
    status = msgspec.structs.replace(claim.status, allocation=allocation)
    return msgspec.structs.replace(claim, status=status)


def consumers_of(pod: Pod, group: SchedulingGroup | None) -> tuple[ConsumerReference, ...]:
    """Whom each claim of the pod is reserved for: its group, where that names the same claim."""
    own = ConsumerReference("", "pods", pod.name, pod.uid)
    if group is None:
        return (own,) * len(pod.spec.resource_claims)
    whole = ConsumerReference("scheduling.k8s.io", "podgroups", group.name, group.uid)
    named = group.spec.resource_claims
    return tuple(whole if use in named else own for use in pod.spec.resource_claims)


def resource_claims_of(
    pod: Pod, object_store: ObjectStore, *, of_group: bool = False
) -> tuple[ResourceClaim, ...] | Status:
    """The claims of the pod, or the refusal where one is missing, being deleted or another
    pod's. of_group: claims that were generated for its group are the pod's."""
    claims = []
    for use in pod.spec.resource_claims:
        name = resource_claim_name_of(pod, use)
        if isinstance(name, Status):
            return name
        if name is None:
            continue
        key = f"{pod.namespace}/{name}"
        claim = object_store.find(ResourceClaim, key)
        if claim is None:
            return unresolvable(f'could not find ResourceClaim "{key}"')
        if claim.metadata.deletion_timestamp is not None:
            return unresolvable(f'resourceclaim "{name}" is being deleted')
        owner = claim.controller
        if use.resource_claim_name is None and (owner is None or owner.uid != pod.uid):
            group = pod.spec.scheduling_group
            name = None if group is None else group.pod_group_name
            if of_group and name is not None:
                if _is_of_group(owner, name):
                    claims.append(claim)
                    continue
                who = f"neither Pod nor PodGroup {name} is the owner"
            else:
                who = "Pod is not owner"
            return unresolvable(f"ResourceClaim {key} was not created for Pod {pod.key} ({who})")
        claims.append(claim)
    return tuple(claims)
