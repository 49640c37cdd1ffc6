"""Extended resources that a DeviceClass provides: which class, and the claim made up for a pod.

Source: kube-scheduler v1.36, plugins/dynamicresources/extendeddynamicresources.go;
dynamic-resource-allocation, deviceclass/extendedresourcecache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from stowplan.objects.devices.device import DEVICE_CLASS_PREFIX, DeviceClass
from stowplan.objects.devices.device_claim import (
    EXACT_COUNT,
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    DeviceClaim,
    DeviceClaimRequest,
    ResourceClaim,
    ResourceClaimSpec,
    SubRequest,
)
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import Container, Pod
from stowplan.objects.pod_requests import is_extended
from stowplan.objects.quantity import value

IN_MEMORY_CLAIM = "<extended-resources>"
"""Name of the claim until it is created."""

_SUFFIX_LETTERS, _NAME_BASE_MAX = "bcdfghjklmnpqrstvwxz2456789", 58
"""As the API server generates names."""

ClassesByResource = Mapping[str, DeviceClass]


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """Resource name to the class that provides it.

    classes: in the order of their arrival. Of two classes for a resource the newer one wins, then
    the lower name; one that loses when it arrives does not get its own name mapped either.
    """
    found: dict[str, DeviceClass] = {}
    for one in classes:
        named = one.spec.extended_resource_name
        before = found.get(named) if named is not None else None
        if before is not None and not _wins(one, before):
            continue
        if named is not None:
            found[named] = one
        found[DEVICE_CLASS_PREFIX + one.name] = one
    return found


def _wins(one: DeviceClass, before: DeviceClass) -> bool:
    mine, others = one.metadata.creation_timestamp, before.metadata.creation_timestamp
    if mine != others:
        return mine is not None and (others is None or mine > others)
    return one.name < before.name


def is_device_resource(name: str) -> bool:
    """True for a resource that a class may provide."""
    return is_extended(name) or name.startswith(DEVICE_CLASS_PREFIX)


def left_over_claim(pod: Pod, claims: Iterable[ResourceClaim]) -> ResourceClaim | None:
    """The pod's claim for extended resources of an earlier attempt, if it still exists."""
    return next((claim for claim in claims if is_special_claim_of(claim, pod)), None)


def is_special_claim_of(claim: ResourceClaim, pod: Pod) -> bool:
    """True for a claim that was created for the extended resources of a pod."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) != "true":
        return False
    return any(
        owner.controller and owner.name == pod.name and owner.uid == pod.uid
        for owner in claim.metadata.owner_references
    )


def special_owner_of(claim: ResourceClaim) -> str | None:
    """Uid of the pod that a claim was created for because of its extended resources; None for any
    other claim."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) != "true":
        return None
    return next((one.uid for one in claim.metadata.owner_references if one.controller), None)


def in_memory_claim(pod: Pod) -> ResourceClaim:
    """A claim without requests for the pod's extended resources."""
    owner = OwnerReference("v1", "Pod", pod.name, pod.uid, controller=True)
    metadata = ObjectMeta(
        name=IN_MEMORY_CLAIM,
        namespace=pod.namespace,
        uid=f"{pod.uid}/{IN_MEMORY_CLAIM}",
        annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
        owner_references=(owner,),
        generate_name=f"{pod.name}-extended-resources-",
    )
    return ResourceClaim(metadata)


def named_claim(claim: ResourceClaim, pod: Pod, seed: str) -> ResourceClaim:
    """The claim under the name by which it is created.

    Differs: the original lets the API server draw the suffix; here it follows from `seed`.
    """
    digest = hashlib.sha256(f"{pod.uid}/{seed}".encode()).digest()
    suffix = "".join(_SUFFIX_LETTERS[one % len(_SUFFIX_LETTERS)] for one in digest[:5])
    base = claim.metadata.generate_name[:_NAME_BASE_MAX]
    metadata = msgspec.structs.replace(
        claim.metadata, name=f"{base}{suffix}", uid="", generate_name=""
    )
    return msgspec.structs.replace(claim, metadata=metadata)


class RequestMapping(msgspec.Struct, frozen=True, rename="camel"):
    """Which request of the claim provides a resource of a container."""

    container_name: str
    resource_name: str
    request_name: str


class ExtendedResourceRequests:
    """The requests made up for the resources of a pod, and what they are for."""

    def __init__(self, pod: Pod, resources: Iterable[str], classes: ClassesByResource) -> None:
        """resources: those to be provided by devices."""
        n_init = len(pod.spec.init_containers)
        self._containers = (*pod.spec.init_containers, *pod.spec.containers)
        self._long = [i for i, c in enumerate(self._containers) if i >= n_init or c.is_sidecar]
        self._short = [i for i in range(n_init) if not self._containers[i].is_sidecar]
        self.mappings: list[RequestMapping] = []
        self.requests: list[DeviceClaimRequest] = []
        for resource in sorted(resources):
            if resource in classes:
                self._add(resource, classes[resource].name)
        self.requests.sort(key=lambda request: request.name)

    def claim_of(self, claim: ResourceClaim) -> ResourceClaim:
        """The claim with these requests."""
        devices = DeviceClaim(requests=tuple(self.requests))
        return msgspec.structs.replace(claim, spec=ResourceClaimSpec(devices))

    def _add(self, resource: str, class_name: str) -> None:
        """Requests of one resource: containers that run together have their own; init containers
        use those of later containers, and one request covers what they need beyond."""
        own: dict[int, DeviceClaimRequest] = {}
        for i in self._long:
            made, mappings = self._request(i, resource, class_name, [])
            self.mappings += mappings
            if made is not None:
                own[i] = made
        of_short: list[RequestMapping] = []
        most: DeviceClaimRequest | None = None
        names: set[str] = set()
        for i in self._short:
            reusable = [own[j] for j in range(i, len(self._containers)) if j in own]
            made, mappings = self._request(i, resource, class_name, reusable)
            of_short += mappings
            if made is not None:
                names.add(made.name)
                if most is None or _count(most) < _count(made):
                    most = made
        if most is not None:
            self.requests.append(most)
            of_short = [
                msgspec.structs.replace(one, request_name=most.name)
                if one.request_name in names
                else one
                for one in of_short
            ]
        self.requests += own.values()
        self.mappings += of_short

    def _request(
        self, index: int, resource: str, class_name: str, reusable: list[DeviceClaimRequest]
    ) -> tuple[DeviceClaimRequest | None, list[RequestMapping]]:
        container = self._containers[index]
        mappings: list[RequestMapping] = []
        wanted = _requested(container, resource)
        if wanted == 0:
            return None, mappings
        n_reused = 0
        for request in reusable:
            n_reused += _count(request)
            mappings.append(RequestMapping(container.name, resource, request.name))
            if n_reused >= wanted:
                return None, mappings
        place = sorted(container.resources.requests).index(resource)
        name = f"container-{index}-request-{place}"
        mappings.append(RequestMapping(container.name, resource, name))
        exactly = SubRequest(
            device_class_name=class_name, allocation_mode=EXACT_COUNT, count=wanted - n_reused
        )
        return DeviceClaimRequest(name, exactly), mappings


def _count(request: DeviceClaimRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0


def _requested(container: Container, resource: str) -> int:
    return value(container.resources.requests.get(resource, 0))
