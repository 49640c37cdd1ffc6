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
  policies JSON
  plugins JSON
  runningEstimate JSON
  queue string
  maxRetry int32
  ttlSecondsAfterFinished int32?
  priorityClassName string
  minSuccess int32?
  networkTopology JSON

VolumeSpec
  mountPath string
  volumeClaimName string
  volumeClaim JSON

TaskSpec
  name string
  replicas int32
  minAvailable int32?
  template core.PodTemplateSpec
  policies JSON
  topologyPolicy string
  maxRetry int32
  dependsOn JSON
  partitionPolicy JSON
"""
SCHEDULING = """
PodGroup
  +PartialObjectMetadata
  spec PodGroupSpec
  status JSON

PodGroupSpec
  minMember int32
  minTaskMember JSON
  queue string
  priorityClassName string
  minResources JSON
  networkTopology JSON
  subGroupPolicy JSON

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
  affinity JSON
  extendClusters JSON
  dequeueStrategy string

Guarantee
  resource {Quantity}
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
