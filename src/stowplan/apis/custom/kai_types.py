"""Fields of kinds of KAI-Scheduler, in the notation of the type tables.

Fields of type `JSON` or `Object` are not checked inside.

Source: KAI-Scheduler, deployments/kai-scheduler/crds.
"""

KAI = """
Queue
  +PartialObjectMetadata
  spec QueueSpec
  status JSON

QueueSpec
  displayName string
  parentQueue string
  resources QueueResources?
  priority int64?
  preemptMinRuntime string?
  reclaimMinRuntime string?

QueueResources
  gpu QueueResource
  cpu QueueResource
  memory QueueResource

QueueResource
  quota float64
  limit float64
  overQuotaWeight float64

PodGroup
  +PartialObjectMetadata
  spec PodGroupSpec
  status JSON

PodGroupSpec
  minMember int32?
  minSubGroup int32?
  queue string
  priorityClassName string
  preemptibility string
  preemptionDelay string?
  stalenessGracePeriod string?
  markUnschedulable bool?
  schedulingBackoff int32?
  topologyConstraint TopologyConstraint
  subGroups [SubGroup]

SubGroup
  name string
  parent string?
  minMember int32?
  minSubGroup int32?
  topologyConstraint TopologyConstraint?

TopologyConstraint
  topology string
  requiredTopologyLevel string
  preferredTopologyLevel string

Topology
  +PartialObjectMetadata
  spec TopologySpec
  status JSON

TopologySpec
  levels [TopologyLevel]

TopologyLevel
  nodeLabel string
  alias string

BindRequest
  +PartialObjectMetadata
  spec BindRequestSpec
  status JSON

BindRequestSpec
  podName string
  selectedNode string
  receivedResourceType string
  receivedGPU ReceivedGpu?
  selectedGPUGroups [string]
  resourceClaimAllocations JSON
  extendedResourceClaimAllocation JSON
  predictedNUMAZones [ZonePlacement]
  backoffLimit int32?

ReceivedGpu
  count int64
  portion string

ZonePlacement
  zone string
  amount {Quantity}
"""
