"""Dynamic resources: device classes, resource slices with their devices, rules that taint devices.

Source: Kubernetes resource.k8s.io/v1 API, v1.36; v1beta2 has the same fields.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from stowplan.objects.meta import Object, Time, Value
from stowplan.objects.quantity import Quantity
from stowplan.objects.selectors import NodeSelector

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Prefix of a DeviceClass's name: the resource that requests a device of that class."""


class CelSelector(Value, frozen=True):
    """`cel` of a selector."""

    expression: str = ""


class DeviceSelector(Value, frozen=True):
    """A condition on devices. cel: None for a kind of selector that is not known."""

    cel: CelSelector | None = None


class OpaqueConfiguration(Value, frozen=True, gc=True):
    """Settings for a driver, passed on as they are."""

    driver: str = ""
    parameters: Any = None


class DeviceClassConfiguration(Value, frozen=True, gc=True):
    """An entry of `spec.config` of a DeviceClass."""

    opaque: OpaqueConfiguration | None = None


class DeviceClassSpec(Value, frozen=True, gc=True):
    """`spec` of a DeviceClass. extended_resource_name: resource by which pods may request it."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object, frozen=True, gc=True):
    """A DeviceClass."""

    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(Value, frozen=True):
    """A typed value: one of the fields is set."""

    int_value: int | None = field(default=None, name="int")
    bool_value: bool | None = field(default=None, name="bool")
    string_value: str | None = field(default=None, name="string")
    version_value: str | None = field(default=None, name="version")
    int_values: tuple[int, ...] | None = field(default=None, name="ints")
    bool_values: tuple[bool, ...] | None = field(default=None, name="bools")
    string_values: tuple[str, ...] | None = field(default=None, name="strings")
    version_values: tuple[str, ...] | None = field(default=None, name="versions")


class CapacityRange(Value, frozen=True):
    """Amounts that a request may have: `min` plus whole steps, up to `max`."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Value, frozen=True):
    """How requests for a shared capacity are rounded. default: for a claim without a request."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Value, frozen=True):
    """An amount that a device has."""

    value: Quantity = 0
    request_policy: CapacityRequestPolicy | None = None


class DeviceCounter(Value, frozen=True):
    """An amount in a counter set."""

    value: Quantity = 0


class CounterSet(Value, frozen=True):
    """Counters that devices of a pool share."""

    name: str = ""
    counters: dict[str, DeviceCounter] = {}


class CounterConsumption(Value, frozen=True):
    """What a device takes from a counter set while it is allocated."""

    counter_set: str = ""
    counters: dict[str, DeviceCounter] = {}


class DeviceTaint(Value, frozen=True):
    """A taint of a device."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class Device(Value, frozen=True):
    """A device of a slice.

    binding_conditions: None where the field is absent, which is not the same as empty.
    """

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(Value, frozen=True):
    """The pool of a slice."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Value, frozen=True):
    """`spec` of a ResourceSlice."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool = False
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Object, frozen=True):
    """A ResourceSlice: devices of a driver, on one node or several."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(Value, frozen=True):
    """Devices of a driver, a pool, a name; None: any."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Value, frozen=True):
    """`spec` of a DeviceTaintRule. device_selector: all devices where it is absent."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Object, frozen=True):
    """A DeviceTaintRule (resource.k8s.io/v1beta2): a taint for devices, by an administrator."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
