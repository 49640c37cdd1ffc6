"""Dynamic resources: claims, what they request and what is allocated for them.

Source: Kubernetes resource.k8s.io/v1 API, v1.36; v1beta2 has the same fields.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from stowplan.objects.devices.device import DeviceSelector, OpaqueConfiguration
from stowplan.objects.meta import NamespacedObject, Time, Value
from stowplan.objects.quantity import Quantity
from stowplan.objects.selectors import NodeSelector

CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
ALLOCATION_RESULTS_MAX = 32
"""Devices per claim."""
SUBREQUESTS_MAX = 8
"""Alternatives of a request."""

EXACT_COUNT, ALL = "ExactCount", "All"


class DeviceToleration(Value, frozen=True):
    """A toleration of device taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(Value, frozen=True):
    """Amounts of a device's capacity."""

    requests: dict[str, Quantity] = {}


class SubRequest(Value, frozen=True):
    """Devices of one class. In `exactly` the name is that of the request around it."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceClaimRequest(Value, frozen=True):
    """A request: exactly one thing, or the first of several that is available."""

    name: str = ""
    exactly: SubRequest | None = None
    first_available: tuple[SubRequest, ...] = ()


class DeviceConstraint(Value, frozen=True):
    """What the devices of several requests must have in common, or not. requests: all if empty."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Value, frozen=True):
    """An entry of `spec.devices.config` of a claim."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceClaim(Value, frozen=True):
    """`spec.devices` of a claim."""

    requests: tuple[DeviceClaimRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Value, frozen=True):
    """`spec` of a claim."""

    devices: DeviceClaim = DeviceClaim()


class ClaimTemplateMetadata(Value, frozen=True):
    """`spec.metadata` of a template: what claims get of it."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ResourceClaimTemplateSpec(Value, frozen=True):
    """`spec` of a template."""

    metadata: ClaimTemplateMetadata = ClaimTemplateMetadata()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(NamespacedObject, frozen=True):
    """A ResourceClaimTemplate."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceResult(Value, frozen=True):
    """A device that is allocated. request: `REQUEST` or `REQUEST/SUBREQUEST`. share_id: set for a
    device that several claims share."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = {}


class AllocatedConfiguration(Value, frozen=True):
    """Settings for the allocated devices. source: FromClass or FromClaim."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceAllocation(Value, frozen=True):
    """`devices` of an allocation."""

    results: tuple[DeviceResult, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()


class AllocationResult(Value, frozen=True):
    """What is allocated for a claim. node_selector: where it can be used, None for everywhere."""

    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None
    allocation_timestamp: Time | None = None


class ConsumerReference(Value, frozen=True):
    """An entry of `status.reservedFor`."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(Value, frozen=True):
    """A condition that a driver reports about an allocated device."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(Value, frozen=True):
    """State of an allocated device, as its driver reports it. data, network_data: undecoded."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(default=None, name="shareID")
    conditions: tuple[DeviceCondition, ...] = ()
    data: Any = None
    network_data: Any = None


class ResourceClaimStatus(Value, frozen=True):
    """`status` of a claim. allocation: None while no devices are allocated."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(NamespacedObject, frozen=True):
    """A ResourceClaim."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    def is_reserved_for(self, uid: str) -> bool:
        """True where a pod of this uid may use the claim already."""
        return any(one.uid == uid for one in self.status.reserved_for)

    def is_reserved_for_group(self, name: str) -> bool:
        """True where all pods of a group of scheduling.k8s.io may use the claim."""
        return any(
            one.api_group == "scheduling.k8s.io"
            and one.resource == "podgroups"
            and one.name == name
            for one in self.status.reserved_for
        )
