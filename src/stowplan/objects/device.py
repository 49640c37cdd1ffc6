"""Devices that pods claim: claims, the slices that offer devices, and classes of them.

Source: Kubernetes resource.k8s.io/v1 API, v1.36.
"""

from __future__ import annotations

from typing import Any

from stowplan.objects.meta import NamespacedObject, Object, Value

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""With the name of a DeviceClass behind it: a resource that asks for a device of that class."""


class ResourceClaimStatus(Value, frozen=True, gc=True):
    """`status` of a claim, all of it, as it came: that it changed is what counts.

    allocation: None while no devices are set aside for the claim.
    """

    allocation: dict[str, Any] | None = None
    reserved_for: tuple[dict[str, Any], ...] = ()
    devices: tuple[dict[str, Any], ...] = ()


class ResourceClaim(NamespacedObject, frozen=True, gc=True):
    """A claim to devices."""

    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceSlice(Object, frozen=True):
    """Devices that a driver offers, on a node or for several."""


class DeviceClassSpec(Value, frozen=True):
    """`spec` of a DeviceClass. extended_resource_name: pods may ask for it by this resource."""

    extended_resource_name: str | None = None


class DeviceClass(Object, frozen=True):
    """A kind of device."""

    spec: DeviceClassSpec = DeviceClassSpec()
