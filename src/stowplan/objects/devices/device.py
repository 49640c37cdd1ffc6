"""Dynamic resources: resource claims, resource slices and device classes.

Source: Kubernetes resource.k8s.io/v1 API, v1.36.
"""

from __future__ import annotations

from typing import Any

from stowplan.objects.meta import NamespacedObject, Object, Value

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Prefix of a DeviceClass's name: the resource that requests a device of that class."""


class ResourceClaimStatus(Value, frozen=True, gc=True):
    """`status` of a claim, undecoded: only that it changed matters.

    allocation: None while no devices are allocated.
    """

    allocation: dict[str, Any] | None = None
    reserved_for: tuple[dict[str, Any], ...] = ()
    devices: tuple[dict[str, Any], ...] = ()


class ResourceClaim(NamespacedObject, frozen=True, gc=True):
    """A ResourceClaim."""

    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceSlice(Object, frozen=True):
    """A ResourceSlice: devices of a driver, on one node or several."""


class DeviceClassSpec(Value, frozen=True):
    """`spec` of a DeviceClass. extended_resource_name: resource by which pods may request it."""

    extended_resource_name: str | None = None


class DeviceClass(Object, frozen=True):
    """A DeviceClass."""

    spec: DeviceClassSpec = DeviceClassSpec()
