"""Fields of imported kinds, in the notation of the embedded server's type tables.

Fields of type `JSON` or `Object` are not checked inside.

Source: volcano.sh/apis batch/v1alpha1 and scheduling/v1beta1; kube-batch v0.5 apis/scheduling;
sigs.k8s.io/jobset v1alpha2; kubeflow trainer v1alpha1 and training-operator v1; KAI-Scheduler,
deployments/kai-scheduler/crds.
"""

from __future__ import annotations

from collections.abc import Mapping

from stowplan.apis.builtin_kinds import type_tables
from stowplan.apis.schema.struct_types import StructType
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_API_VERSION,
    KAI_QUEUE_API_VERSION,
    KAI_TOPOLOGY_API_VERSION,
)

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
  deserved JSON
  guarantee JSON
  reclaimable bool?
  priority int32
  parent string
  type string
  affinity JSON
  extendClusters JSON
  dequeueStrategy string
"""
JOBSET = """
JobSet
  +PartialObjectMetadata
  spec JobSetSpec
  status JSON

JobSetSpec
  replicatedJobs [ReplicatedJob]
  network JSON
  successPolicy JSON
  failurePolicy JSON
  startupPolicy JSON
  suspend bool?
  coordinator JSON
  managedBy string?
  ttlSecondsAfterFinished int32?
  volumeClaimPolicies JSON

ReplicatedJob
  name string
  groupName string
  template batch.JobTemplateSpec
  replicas int32?
  dependsOn JSON
"""
TRAINER = """
TrainJob
  +PartialObjectMetadata
  spec TrainJobSpec
  status JSON

TrainJobSpec
  runtimeRef RuntimeRef
  initializer JSON
  trainer Trainer?
  labels {string}
  annotations {string}
  podSpecOverrides JSON
  podTemplateOverrides JSON
  runtimePatches JSON
  suspend bool?
  activeDeadlineSeconds int64
  managedBy string?

RuntimeRef
  name string
  apiGroup string?
  kind string?

Trainer
  image string?
  command [string]
  args [string]
  env [core.EnvVar]
  numNodes int32?
  resourcesPerNode core.ResourceRequirements?
  numProcPerNode JSON

ClusterTrainingRuntime
  +PartialObjectMetadata
  spec TrainingRuntimeSpec

TrainingRuntime
  +PartialObjectMetadata
  spec TrainingRuntimeSpec

TrainingRuntimeSpec
  mlPolicy MLPolicy?
  podGroupPolicy JSON
  template JobSetTemplateSpec

MLPolicy
  numNodes int32?
  torch JSON
  mpi JSON
  flux JSON
  jax JSON
  xgboost JSON

JobSetTemplateSpec
  metadata ObjectMeta
  spec jobset.JobSetSpec
"""
KUBEFLOW = """
PyTorchJob
  +PartialObjectMetadata
  spec PyTorchJobSpec
  status JSON

PyTorchJobSpec
  runPolicy RunPolicy
  elasticPolicy JSON
  pytorchReplicaSpecs {ReplicaSpec}
  nprocPerNode JSON

RunPolicy
  cleanPodPolicy string?
  ttlSecondsAfterFinished int32?
  activeDeadlineSeconds int64?
  backoffLimit int32?
  schedulingPolicy SchedulingPolicy?
  suspend bool?
  managedBy string?

SchedulingPolicy
  minAvailable int32?
  queue string
  minResources JSON
  priorityClass string
  scheduleTimeoutSeconds int32?

ReplicaSpec
  replicas int32?
  template core.PodTemplateSpec
  restartPolicy string
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
"""

_PACKAGES = {
    "kai/v2": KAI,
    "volcano/v1": VOLCANO,
    "scheduling/v1beta1": SCHEDULING,
    "jobset/v1": JOBSET,
    "trainer/v1": TRAINER,
    "kubeflow/v1": KUBEFLOW,
}
_KINDS = {
    ("batch.volcano.sh/v1alpha1", "Job"): "volcano/v1.Job",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobset/v1.JobSet",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "trainer/v1.TrainJob",
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): "trainer/v1.TrainingRuntime",
    (
        "trainer.kubeflow.org/v1alpha1",
        "ClusterTrainingRuntime",
    ): "trainer/v1.ClusterTrainingRuntime",
    ("kubeflow.org/v1", "PyTorchJob"): "kubeflow/v1.PyTorchJob",
    (KAI_QUEUE_API_VERSION, "Queue"): "kai/v2.Queue",
    (KAI_GROUP_API_VERSION, "PodGroup"): "kai/v2.PodGroup",
    (KAI_TOPOLOGY_API_VERSION, "Topology"): "kai/v2.Topology",
} | {
    (version, kind): f"scheduling/v1beta1.{kind}"
    for version in (
        "scheduling.incubator.k8s.io/v1alpha1",
        "scheduling.sigs.dev/v1alpha2",
        "scheduling.volcano.sh/v1beta1",
    )
    for kind in ("PodGroup", "Queue")
}


def structs() -> Mapping[tuple[str, str], StructType]:
    """(apiVersion, kind) -> type of imported kinds."""
    made = type_tables.extended()
    for package, text in _PACKAGES.items():
        made.read(package, text)
    return {key: made.struct(name) for key, name in _KINDS.items()}
