"""Fields of kinds of Volcano and of kube-batch, in the notation of the type tables.

Fields of type `JSON` or `Object` are not checked inside.

Source: volcano.sh/apis batch/v1alpha1 and scheduling/v1beta1; kube-batch v0.5 apis/scheduling.
"""

VOLCANO = """
Job
  +PartialObjectMetadata
  spec JobSpec
  status JSON

JobSpec
  schedulerName string
  minAvailable int32
  volumes [VolumeSpec]
  tasks [TaskSpec]
  policies [LifecyclePolicy]
  plugins {[string]}
  runningEstimate string?
  queue string
  maxRetry int32
  ttlSecondsAfterFinished int32?
  priorityClassName string
  minSuccess int32?
  networkTopology NetworkTopologySpec?

VolumeSpec
  mountPath string
  volumeClaimName string
  volumeClaim core.PersistentVolumeClaimSpec?

TaskSpec
  name string
  replicas int32
  minAvailable int32?
  template core.PodTemplateSpec
  policies [LifecyclePolicy]
  topologyPolicy string
  maxRetry int32
  dependsOn DependsOn?
  partitionPolicy PartitionPolicySpec?

LifecyclePolicy
  action string
  event string
  events [string]
  exitCode int32?
  timeout string?

DependsOn
  name [string]
  iteration string

PartitionPolicySpec
  totalPartitions int32
  partitionSize int32
  networkTopology NetworkTopologySpec?
  minPartitions int32

NetworkTopologySpec
  mode string
  highestTierAllowed int64?
  highestTierName string

"""
SCHEDULING = """
PodGroup
  +PartialObjectMetadata
  spec PodGroupSpec
  status JSON

PodGroupSpec
  minMember int32
  minTaskMember {int32}
  queue string
  priorityClassName string
  minResources {Quantity}?
  networkTopology NetworkTopologySpec?
  subGroupPolicy [SubGroupPolicySpec]

Queue
  +PartialObjectMetadata
  spec QueueSpec
  status JSON

QueueSpec
  weight int32
  capability {Quantity}
  deserved {Quantity}
  guarantee Guarantee?
  reclaimable bool?
  priority int32
  parent string
  type string
  affinity Affinity?
  extendClusters [Cluster]
  dequeueStrategy string

Guarantee
  resource {Quantity}

SubGroupPolicySpec
  name string
  networkTopology NetworkTopologySpec?
  subGroupSize int32?
  minSubGroups int32?
  labelSelector LabelSelector?
  matchLabelKeys [string]

NetworkTopologySpec
  mode string
  highestTierAllowed int64?
  highestTierName string

Affinity
  nodeGroupAffinity NodeGroups?
  nodeGroupAntiAffinity NodeGroups?

NodeGroups
  requiredDuringSchedulingIgnoredDuringExecution [string]
  preferredDuringSchedulingIgnoredDuringExecution [string]

Cluster
  name string
  weight int32
  capacity {Quantity}
"""
TOPOLOGY = """
HyperNode
  +PartialObjectMetadata
  spec HyperNodeSpec
  status JSON

HyperNodeSpec
  tier int64
  tierName string
  members [HyperNodeMember]

HyperNodeMember
  type string
  selector MemberSelector

MemberSelector
  exactMatch ExactMatch?
  regexMatch RegexMatch?
  labelMatch LabelSelector?

ExactMatch
  name string

RegexMatch
  pattern string
"""
