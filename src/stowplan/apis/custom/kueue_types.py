"""Fields of kinds of Kueue, in the notation of the type tables: those of v1beta2, and those that
only v1beta1 has.

Both versions have the same table, because objects are stored in the version in which they were
written: a field that only one of them has would be lost in the other.

Fields of type `JSON` are not checked inside.

Source: sigs.k8s.io/kueue of 2026-08-22, apis/kueue/v1beta1 and v1beta2.
"""

KUEUE = """
ClusterQueue
  +PartialObjectMetadata
  spec ClusterQueueSpec
  status JSON

ClusterQueueSpec
  resourceGroups [ResourceGroup]
  cohortName string
  cohort string
  queueingStrategy string
  namespaceSelector LabelSelector?
  flavorFungibility FlavorFungibility?
  preemption ClusterQueuePreemption?
  admissionChecks [string]
  admissionChecksStrategy AdmissionChecksStrategy?
  stopPolicy string?
  fairSharing FairSharing?
  admissionScope AdmissionScope?
  concurrentAdmissionPolicy JSON

ResourceGroup
  coveredResources [string]
  flavors [FlavorQuotas]

FlavorQuotas
  name string
  resources [ResourceQuota]

ResourceQuota
  name string
  nominalQuota Quantity?
  borrowingLimit Quantity?
  lendingLimit Quantity?

FlavorFungibility
  whenCanBorrow string
  whenCanPreempt string
  preference string?

ClusterQueuePreemption
  reclaimWithinCohort string
  borrowWithinCohort BorrowWithinCohort?
  withinClusterQueue string

BorrowWithinCohort
  policy string
  maxPriorityThreshold int32?

AdmissionChecksStrategy
  admissionChecks [AdmissionCheckRule]

AdmissionCheckRule
  name string
  onFlavors [string]

FairSharing
  weight Quantity?

AdmissionScope
  admissionMode string

Cohort
  +PartialObjectMetadata
  spec CohortSpec
  status JSON

CohortSpec
  parentName string
  resourceGroups [ResourceGroup]
  fairSharing FairSharing?

LocalQueue
  +PartialObjectMetadata
  spec LocalQueueSpec
  status JSON

LocalQueueSpec
  clusterQueue string
  stopPolicy string?
  fairSharing FairSharing?

ResourceFlavor
  +PartialObjectMetadata
  spec ResourceFlavorSpec

ResourceFlavorSpec
  nodeLabels {string}
  nodeTaints [core.Taint]
  tolerations [core.Toleration]
  topologyName string?

AdmissionCheck
  +PartialObjectMetadata
  spec AdmissionCheckSpec
  status JSON

AdmissionCheckSpec
  controllerName string
  retryDelayMinutes int64?
  parameters CheckParameters?

CheckParameters
  apiGroup string
  kind string
  name string

WorkloadPriorityClass
  +PartialObjectMetadata
  value int32?
  description string

Topology
  +PartialObjectMetadata
  spec TopologySpec

TopologySpec
  levels [TopologyLevel]

TopologyLevel
  nodeLabel string

Workload
  +PartialObjectMetadata
  spec WorkloadSpec
  status JSON

WorkloadSpec
  podSets [PodSet]
  queueName string
  priorityClassRef PriorityClassRef?
  priorityClassName string
  priorityClassSource string
  priority int32?
  active bool?
  maximumExecutionTimeSeconds int32?
  preemptionGates [PreemptionGate]

PriorityClassRef
  group string
  kind string
  name string

PreemptionGate
  name string

PodSet
  name string
  template core.PodTemplateSpec
  count int32
  minCount int32?
  topologyRequest TopologyRequest?

TopologyRequest
  required string?
  preferred string?
  unconstrained bool?
  podIndexLabel string?
  subGroupIndexLabel string?
  subGroupCount int32?
  podSetGroupName string?
  podSetSliceRequiredTopology string?
  podSetSliceSize int32?
  podsetSliceRequiredTopologyConstraints [SliceConstraint]

SliceConstraint
  topology string
  size int32
"""
