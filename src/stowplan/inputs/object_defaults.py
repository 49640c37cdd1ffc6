"""API defaults of fields that plugins read.

Objects that the API server has stored are unchanged.

Source: Kubernetes v1.36, the defaults of core/v1, storage/v1 and resource/v1.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stowplan.objects.devices.device_claim import (
    EXACT_COUNT,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    SubRequest,
)
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Container, PodSpec
from stowplan.objects.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    PhaseStatus,
    StorageClass,
)
from stowplan.objects.workload import Namespace

NAMESPACE_LABEL = "kubernetes.io/metadata.name"


def with_defaults(found: Object) -> Object:
    """The object with defaults, except pods and pod templates."""
    match found:
        case Node() if not found.status.allocatable:
            status = replace(found.status, allocatable=found.status.capacity)
            return replace(found, status=status)
        case StorageClass() if found.volume_binding_mode is None:
            return replace(found, volume_binding_mode="Immediate")
        case PersistentVolume() if not found.status.phase:
            # Manifests have no phase; the controller sets Available for an unclaimed volume
            # and Bound for a claimed one.
            phase = PhaseStatus("Bound" if found.spec.claim_ref else "Available")
            return with_defaults(replace(found, status=phase))
        case PersistentVolume() | PersistentVolumeClaim():
            # Volumes refer to claims by uid.
            own = found.key if isinstance(found, PersistentVolumeClaim) else found.name
            meta = replace(found.metadata, uid=found.metadata.uid or own)
            mode = found.spec.volume_mode or "Filesystem"
            return replace(found, metadata=meta, spec=replace(found.spec, volume_mode=mode))
        case ResourceClaim():
            # Plugins compare claims by uid.
            meta = replace(found.metadata, uid=found.metadata.uid or found.key)
            return replace(found, metadata=meta, spec=_claim_with_defaults(found.spec))
        case ResourceClaimTemplate():
            inner = _claim_with_defaults(found.spec.spec)
            return replace(found, spec=replace(found.spec, spec=inner))
        case Namespace():
            return with_name_label(found)
    return found


def _claim_with_defaults(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    requests = tuple(
        replace(
            one,
            exactly=None if one.exactly is None else _request_with_defaults(one.exactly),
            first_available=tuple(_request_with_defaults(sub) for sub in one.first_available),
        )
        for one in spec.devices.requests
    )
    return replace(spec, devices=replace(spec.devices, requests=requests))


def _request_with_defaults(request: SubRequest) -> SubRequest:
    mode = request.allocation_mode or EXACT_COUNT
    count = request.count or (1 if mode == EXACT_COUNT else 0)
    tolerations = tuple(
        replace(one, operator=one.operator or "Equal") for one in request.tolerations
    )
    return replace(request, allocation_mode=mode, count=count, tolerations=tolerations)


def with_name_label(namespace: Namespace) -> Namespace:
    """The namespace with its name label."""
    labels = {**namespace.labels, NAMESPACE_LABEL: namespace.name}
    if labels == namespace.labels:
        return namespace
    return replace(namespace, metadata=replace(namespace.metadata, labels=labels))


def spec_with_defaults(spec: PodSpec) -> PodSpec:
    """The spec with defaults; the same object when nothing changes."""
    changes: dict[str, Any] = {}
    fill = _with_host_ports if spec.host_network else _with_requests
    for field in ("containers", "init_containers"):
        before: tuple[Container, ...] = getattr(spec, field)
        after = tuple(fill(container) for container in before)
        if any(a is not b for a, b in zip(after, before, strict=True)):
            changes[field] = after
    resources = spec.resources
    if resources is not None:
        asked = {name for c in spec.containers for name in _with_requests(c).resources.requests}
        requests = {k: q for k, q in resources.limits.items() if k not in asked}
        requests |= resources.requests
        if requests != resources.requests:
            changes["resources"] = replace(resources, requests=requests)
    return replace(spec, **changes) if changes else spec


def _with_requests(container: Container) -> Container:
    """The container with requests defaulted to limits."""
    resources = container.resources
    missing = {k: q for k, q in resources.limits.items() if k not in resources.requests}
    if not missing:
        return container
    requests = {**resources.requests, **missing}
    return replace(container, resources=replace(resources, requests=requests))


def _with_host_ports(container: Container) -> Container:
    """The container of a hostNetwork pod, with hostPort defaulted to containerPort."""
    container = _with_requests(container)
    if all(port.host_port for port in container.ports):
        return container
    ports = tuple(replace(p, host_port=p.host_port or p.container_port) for p in container.ports)
    return replace(container, ports=ports)
