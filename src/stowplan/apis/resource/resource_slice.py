"""ResourceSlice.

Source: kubernetes v1.36, pkg/registry/resource, pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, immutable_fields, selectable_fields
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.resource.slice_validation import validate_resource_slice
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
  devices [Device]?
  perDeviceNodeSelection bool?
  sharedCounters [CounterSet]?

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


class ResourceSliceStrategy(BuiltinStrategy):
    """ResourceSlice: sets timeAdded of device taints."""

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        super().prepare_create(obj, call)
        _set_taint_times(obj, call.now)

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        super().prepare_update(new, old, call)
        _set_taint_times(new, call.now)

    def canonicalize(self, obj: Tree) -> None:
        for name in ("devices", "sharedCounters"):
            if not obj["spec"].get(name, True):
                del obj["spec"][name]


def _set_taint_times(obj: Tree, now: float) -> None:
    for device in obj["spec"].get("devices") or ():
        for taint in device.get("taints", ()):
            taint.setdefault("timeAdded", timestamps.format_time(now))


KIND = KindRegistration(
    group="resource.k8s.io",
    kind="ResourceSlice",
    types=TYPES,
    namespaced=False,
    strategy=ResourceSliceStrategy(
        validate_resource_slice,
        immutable_fields(
            "spec.pool.name", "spec.driver", "spec.nodeName", check=validate_resource_slice
        ),
        counted=("spec",),
        returns_deleted=True,
    ),
    table=PrintedTable("Name, Node=spec.nodeName, Driver=spec.driver, Pool=spec.pool.name, Age"),
    fields=selectable_fields("spec.nodeName", "spec.driver"),
)
