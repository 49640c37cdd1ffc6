"""Fields of JobSets and of jobs of Kubeflow, in the notation of the type tables.

Fields of type `JSON` or `Object` are not checked inside.

Source: sigs.k8s.io/jobset v1alpha2; kubeflow trainer v1alpha1 and training-operator v1.
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
