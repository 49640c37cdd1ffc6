"""Devices that pods can claim (resource.k8s.io/v1)."""

RESOURCE = """
QualifiedName FullyQualifiedName DeviceTaintEffect DeviceAllocationMode = string
DeviceTolerationOperator AllocationConfigSource = string

ResourceSlice -- devices that a driver offers.
  kind string
  apiVersion string
  metadata ObjectMeta
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

ResourceClaim -- asks for devices.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec ResourceClaimSpec!
  status ResourceClaimStatus

ResourceClaimSpec
  devices DeviceClaim!

DeviceClaim
  requests [DeviceRequest]?!
  constraints [DeviceConstraint]
  config [DeviceClaimConfiguration]

DeviceRequest
  name string!
  exactly ExactDeviceRequest?
  firstAvailable [DeviceSubRequest]

ExactDeviceRequest
  deviceClassName string!
  selectors [DeviceSelector]
  allocationMode DeviceAllocationMode =ExactCount
  count int64
  adminAccess bool?
  tolerations [DeviceToleration]
  capacity CapacityRequirements?

DeviceSubRequest
  name string!
  deviceClassName string!
  selectors [DeviceSelector]
  allocationMode DeviceAllocationMode =ExactCount
  count int64
  tolerations [DeviceToleration]
  capacity CapacityRequirements?

CapacityRequirements
  requests {Quantity}

DeviceSelector
  cel CELDeviceSelector?

CELDeviceSelector
  expression string!

DeviceConstraint
  requests [string]
  matchAttribute FullyQualifiedName?
  distinctAttribute FullyQualifiedName?

DeviceClaimConfiguration
  requests [string]
  opaque OpaqueDeviceConfiguration?

OpaqueDeviceConfiguration
  driver string!
  parameters JSON!

DeviceToleration
  key string
  operator DeviceTolerationOperator =Equal
  value string
  effect DeviceTaintEffect
  tolerationSeconds int64?

ResourceClaimStatus
  allocation AllocationResult?
  reservedFor [ResourceClaimConsumerReference] ~merge:uid
  devices [AllocatedDeviceStatus]

ResourceClaimConsumerReference
  apiGroup string
  resource string!
  name string!
  uid UID!

AllocationResult
  devices DeviceAllocationResult
  nodeSelector core.NodeSelector?
  allocationTimestamp Time?

DeviceAllocationResult
  results [DeviceRequestAllocationResult]
  config [DeviceAllocationConfiguration]

DeviceRequestAllocationResult
  request string!
  driver string!
  pool string!
  device string!
  adminAccess bool?
  tolerations [DeviceToleration]
  bindingConditions [string]
  bindingFailureConditions [string]
  shareID UID?
  consumedCapacity {Quantity}

DeviceAllocationConfiguration
  source AllocationConfigSource!
  requests [string]
  opaque OpaqueDeviceConfiguration?

AllocatedDeviceStatus
  driver string!
  pool string!
  device string!
  shareID string?
  conditions [Condition]!
  data JSON?
  networkData NetworkDeviceData?

NetworkDeviceData
  interfaceName string
  ips [string]
  hardwareAddress string

DeviceClass -- a kind of device to ask for.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec DeviceClassSpec!

DeviceClassSpec
  selectors [DeviceSelector]
  config [DeviceClassConfiguration]
  extendedResourceName string?

DeviceClassConfiguration
  opaque OpaqueDeviceConfiguration?

ResourceClaimTemplate -- claims to make for each pod.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec ResourceClaimTemplateSpec!

ResourceClaimTemplateSpec
  metadata ObjectMeta
  spec ResourceClaimSpec!
"""
