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
  spec ResourceSliceSpec! -- driver, pool and devices.

ResourceSliceSpec
  driver string! -- driver that publishes it.
  pool ResourcePool! -- pool that the devices belong to.
  nodeName string? -- the node that has the devices.
  nodeSelector core.NodeSelector? -- nodes that can use the devices.
  allNodes bool? -- every node can use the devices.
  devices [Device]? -- the devices.
  perDeviceNodeSelection bool? -- each device names its nodes.
  sharedCounters [CounterSet]? -- counters that devices of the pool draw on.

CounterSet
  name string! -- name of the set.
  counters {Counter} -- amount of each counter.

ResourcePool
  name string! -- unique for the driver.
  generation int64! -- slices of an older generation are ignored.
  resourceSliceCount int64! -- slices of the pool; with fewer it is incomplete.

Device
  name string! -- unique in the pool.
  attributes {DeviceAttribute} -- what selectors and constraints read.
  capacity {DeviceCapacity} -- amounts that selectors read and requests consume.
  consumesCounters [DeviceCounterConsumption] -- what it takes from shared counters when allocated.
  nodeName string? -- the node that has it, with perDeviceNodeSelection.
  nodeSelector core.NodeSelector? -- nodes that can use it, with perDeviceNodeSelection.
  allNodes bool? -- every node can use it, with perDeviceNodeSelection.
  taints [DeviceTaint] -- repel requests that do not tolerate them.
  bindsToNode bool? -- the allocation is limited to the chosen node.
  bindingConditions [string] -- must be True before pods are bound.
  bindingFailureConditions [string] -- one that is True frees the claim.
  allowMultipleAllocations bool? -- several claims can share it.
  nodeAllocatableResourceMappings {NodeAllocatableResourceMapping}

NodeAllocatableResourceMapping
  capacityKey QualifiedName?
  allocationMultiplier Quantity? ="1"

DeviceCounterConsumption
  counterSet string! -- set that it draws on.
  counters {Counter} -- amount of each counter.

DeviceCapacity
  value Quantity! -- how much there is.
  requestPolicy CapacityRequestPolicy? -- amounts that may be requested.

Counter
  value Quantity! -- the amount.

CapacityRequestPolicy
  default Quantity?! -- consumed where a request names none.
  validValues [Quantity] -- requests are rounded up to one of them.
  validRange CapacityRequestPolicyRange? -- least, most and step of requests.

CapacityRequestPolicyRange
  min Quantity? -- least amount.
  max Quantity? -- greatest amount.
  step Quantity? -- requests are rounded up to min plus a multiple of it.

DeviceAttribute
  int int64? -- an integer.
  bool bool? -- true or false.
  string string? -- a text of at most 64 characters.
  version string? -- a semantic version.
  ints [int64]
  bools [bool]
  strings [string]
  versions [string]

DeviceTaint
  key string! -- key of the taint.
  value string -- value of the taint.
  effect DeviceTaintEffect! -- None, NoSchedule or NoExecute.
  timeAdded Time? -- when it was added; NoExecute counts from it.
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
