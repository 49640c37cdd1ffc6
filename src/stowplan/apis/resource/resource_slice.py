"""ResourceSlice.

Source: kubernetes v1.36, pkg/registry/resource, pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.core import pod_scheduling
from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, immutable_fields, selectable_fields
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import Cause, invalid, required, too_many
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.resource.device_validation import validate_driver_name
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
QualifiedName = string

ResourceSlice -- a set of devices that a driver publishes.
  +PartialObjectMetadata
  spec ResourceSliceSpec!

ResourceSliceSpec
  driver string!
  pool ResourcePool!
  nodeName string?
  nodeSelector core.NodeSelector?
  allNodes bool?
  devices [Device]
  perDeviceNodeSelection bool?
  sharedCounters [CounterSet]

CounterSet
  name string!
  counters {Counter}

ResourcePool
  name string!
  generation int64!
  resourceSliceCount int64!

Device
  name string!
  attributes {DeviceAttribute}
  capacity {DeviceCapacity}
  consumesCounters [DeviceCounterConsumption]
  nodeName string?
  nodeSelector core.NodeSelector?
  allNodes bool?
  taints [DeviceTaint]
  bindsToNode bool?
  bindingConditions [string]
  bindingFailureConditions [string]
  allowMultipleAllocations bool?
  nodeAllocatableResourceMappings {NodeAllocatableResourceMapping}

NodeAllocatableResourceMapping
  capacityKey QualifiedName?
  allocationMultiplier Quantity? ="1"

DeviceCounterConsumption
  counterSet string!
  counters {Counter}

DeviceCapacity
  value Quantity!
  requestPolicy CapacityRequestPolicy?

Counter
  value Quantity!

CapacityRequestPolicy
  default Quantity?!
  validValues [Quantity]
  validRange CapacityRequestPolicyRange?

CapacityRequestPolicyRange
  min Quantity?
  max Quantity?
  step Quantity?

DeviceAttribute
  int int64?
  bool bool?
  string string?
  version string?
  ints [int64]
  bools [bool]
  strings [string]
  versions [string]

DeviceTaint
  key string!
  value string
  effect DeviceTaintEffect!
  timeAdded Time?
"""
_DEVICES_MAX = 128


class ResourceSliceStrategy(BuiltinStrategy):
    """ResourceSlice: sets timeAdded of device taints."""

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        super().prepare_create(obj, call)
        _set_taint_times(obj, call.now)

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        super().prepare_update(new, old, call)
        _set_taint_times(new, call.now)


def _set_taint_times(obj: Tree, now: float) -> None:
    for device in obj["spec"].get("devices", ()):
        for taint in device.get("taints", ()):
            taint.setdefault("timeAdded", timestamps.format_time(now))


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from validate_driver_name(spec["driver"], "spec.driver")
    pool = spec["pool"]
    if not pool["name"]:
        yield required("spec.pool.name")
    if pool["resourceSliceCount"] <= 0:
        yield invalid(
            "spec.pool.resourceSliceCount", pool["resourceSliceCount"], field_checks.POSITIVE
        )
    yield from field_checks.not_negative(pool["generation"], "spec.pool.generation")
    where = [
        name
        for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
        if spec.get(name)
    ]
    names = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"
    text = f"exactly one of {names} is required"
    if not where:
        yield required("spec", text)
    elif len(where) > 1:
        given = f"{{{', '.join(f'`{name}`' for name in where)}}}"
        yield invalid("spec", given, f"{text}, but multiple fields are set")
    if "nodeName" in spec:
        yield from field_checks.dns_subdomain(spec["nodeName"], "spec.nodeName")
    if "nodeSelector" in spec:
        yield from pod_scheduling.node_selector(spec["nodeSelector"], "spec.nodeSelector")
    yield from _validate_devices(spec.get("devices", []))


def _validate_devices(given: list[Tree]) -> Iterator[Cause]:
    if len(given) > _DEVICES_MAX:
        yield too_many("spec.devices", len(given), _DEVICES_MAX)
    names: set[str] = set()
    for at, one in enumerate(given):
        here = f"spec.devices[{at}]"
        yield from field_checks.dns_label(one["name"], f"{here}.name")
        yield from field_checks.unique(one["name"], names, here)
        for key, value in sorted(one.get("attributes", {}).items()):
            if len(value) != 1:
                text = "exactly one value must be specified"
                path = f"{here}.attributes[{key}]"
                yield invalid(path, None, text) if value else required(path, text)


KIND = KindRegistration(
    group="resource.k8s.io",
    kind="ResourceSlice",
    types=TYPES,
    namespaced=False,
    strategy=ResourceSliceStrategy(
        _validate,
        immutable_fields("spec.driver", "spec.nodeName", "spec.pool.name", check=_validate),
        counted=("spec",),
        returns_deleted=True,
    ),
    table=PrintedTable("Name, Node=spec.nodeName, Driver=spec.driver, Pool=spec.pool.name, Age"),
    fields=selectable_fields("spec.nodeName", "spec.driver"),
)
