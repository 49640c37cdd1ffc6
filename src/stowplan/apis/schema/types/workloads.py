"""Workloads: apps/v1, batch/v1, policy/v1, autoscaling/v1 (the scale view)."""

APPS = """
PodManagementPolicyType StatefulSetUpdateStrategyType StatefulSetConditionType = string
PersistentVolumeClaimRetentionPolicyType DeploymentStrategyType DeploymentConditionType = string
DaemonSetUpdateStrategyType DaemonSetConditionType ReplicaSetConditionType = string

Deployment -- keeps a number of equal pods and replaces them step by step.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec DeploymentSpec
  status DeploymentStatus

DeploymentSpec
  replicas int32? =1
  selector LabelSelector?!
  template core.PodTemplateSpec!
  strategy DeploymentStrategy ~retainKeys
  minReadySeconds int32
  revisionHistoryLimit int32? =10
  paused bool
  progressDeadlineSeconds int32? =600

DeploymentStrategy
  type DeploymentStrategyType =RollingUpdate
  rollingUpdate RollingUpdateDeployment?

RollingUpdateDeployment
  maxUnavailable IntOrString?
  maxSurge IntOrString?

DeploymentStatus
  observedGeneration int64
  replicas int32
  updatedReplicas int32
  readyReplicas int32
  availableReplicas int32
  unavailableReplicas int32
  terminatingReplicas int32?
  conditions [DeploymentCondition] ~merge:type
  collisionCount int32?

DeploymentCondition
  type DeploymentConditionType!
  status core.ConditionStatus!
  lastUpdateTime Time
  lastTransitionTime Time
  reason string
  message string

ReplicaSet -- keeps a number of equal pods.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec ReplicaSetSpec
  status ReplicaSetStatus

ReplicaSetSpec
  replicas int32? =1
  minReadySeconds int32
  selector LabelSelector?!
  template core.PodTemplateSpec

ReplicaSetStatus
  replicas int32!
  fullyLabeledReplicas int32
  readyReplicas int32
  availableReplicas int32
  terminatingReplicas int32?
  observedGeneration int64
  conditions [ReplicaSetCondition] ~merge:type

ReplicaSetCondition
  type ReplicaSetConditionType!
  status core.ConditionStatus!
  lastTransitionTime Time
  reason string
  message string

StatefulSet -- keeps numbered pods, each with storage of its own.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec StatefulSetSpec
  status StatefulSetStatus

StatefulSetSpec
  replicas int32? =1
  selector LabelSelector?!
  template core.PodTemplateSpec!
  volumeClaimTemplates [core.PersistentVolumeClaim]
  serviceName string!
  podManagementPolicy PodManagementPolicyType =OrderedReady
  updateStrategy StatefulSetUpdateStrategy
  revisionHistoryLimit int32? =10
  minReadySeconds int32
  persistentVolumeClaimRetentionPolicy StatefulSetPersistentVolumeClaimRetentionPolicy?
  ordinals StatefulSetOrdinals?

StatefulSetUpdateStrategy
  type StatefulSetUpdateStrategyType
  rollingUpdate RollingUpdateStatefulSetStrategy?

RollingUpdateStatefulSetStrategy
  partition int32?
  maxUnavailable IntOrString?

StatefulSetPersistentVolumeClaimRetentionPolicy
  whenDeleted PersistentVolumeClaimRetentionPolicyType =Retain
  whenScaled PersistentVolumeClaimRetentionPolicyType =Retain

StatefulSetOrdinals
  start int32!

StatefulSetStatus
  observedGeneration int64
  replicas int32!
  readyReplicas int32
  currentReplicas int32
  updatedReplicas int32
  currentRevision string
  updateRevision string
  collisionCount int32?
  conditions [StatefulSetCondition] ~merge:type
  availableReplicas int32!

StatefulSetCondition
  type StatefulSetConditionType!
  status core.ConditionStatus!
  lastTransitionTime Time
  reason string
  message string

DaemonSet -- keeps one pod on every node that fits.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec DaemonSetSpec
  status DaemonSetStatus

DaemonSetSpec
  selector LabelSelector?!
  template core.PodTemplateSpec!
  updateStrategy DaemonSetUpdateStrategy
  minReadySeconds int32
  revisionHistoryLimit int32? =10

DaemonSetUpdateStrategy
  type DaemonSetUpdateStrategyType =RollingUpdate
  rollingUpdate RollingUpdateDaemonSet?

RollingUpdateDaemonSet
  maxUnavailable IntOrString?
  maxSurge IntOrString?

DaemonSetStatus
  currentNumberScheduled int32!
  numberMisscheduled int32!
  desiredNumberScheduled int32!
  numberReady int32!
  observedGeneration int64
  updatedNumberScheduled int32
  numberAvailable int32
  numberUnavailable int32
  collisionCount int32?
  conditions [DaemonSetCondition] ~merge:type

DaemonSetCondition
  type DaemonSetConditionType!
  status core.ConditionStatus!
  lastTransitionTime Time
  reason string
  message string

ControllerRevision -- a past state of a workload.
  kind string
  apiVersion string
  metadata ObjectMeta
  data JSON
  revision int64!
"""

BATCH = """
CompletionMode PodFailurePolicyAction PodFailurePolicyOnExitCodesOperator = string
PodReplacementPolicy JobConditionType ConcurrencyPolicy = string

Job -- runs pods until enough of them have succeeded.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec JobSpec
  status JobStatus

JobSpec
  parallelism int32? -- how many pods run at a time.
  completions int32? -- how many must succeed.
  activeDeadlineSeconds int64?
  podFailurePolicy PodFailurePolicy?
  successPolicy SuccessPolicy?
  backoffLimit int32? -- how many may fail.
  backoffLimitPerIndex int32?
  maxFailedIndexes int32?
  selector LabelSelector?
  manualSelector bool?
  template core.PodTemplateSpec!
  ttlSecondsAfterFinished int32?
  completionMode CompletionMode?
  suspend bool?
  podReplacementPolicy PodReplacementPolicy?
  managedBy string?

PodFailurePolicy
  rules [PodFailurePolicyRule]!

PodFailurePolicyRule
  action PodFailurePolicyAction!
  onExitCodes PodFailurePolicyOnExitCodesRequirement?
  onPodConditions [PodFailurePolicyOnPodConditionsPattern]

PodFailurePolicyOnExitCodesRequirement
  containerName string?
  operator PodFailurePolicyOnExitCodesOperator!
  values [int32]!

PodFailurePolicyOnPodConditionsPattern
  type core.PodConditionType!
  status core.ConditionStatus!

SuccessPolicy
  rules [SuccessPolicyRule]!

SuccessPolicyRule
  succeededIndexes string?
  succeededCount int32?

JobStatus
  conditions [JobCondition] ~merge:type
  startTime Time?
  completionTime Time?
  active int32
  succeeded int32
  failed int32
  terminating int32?
  completedIndexes string
  failedIndexes string?
  uncountedTerminatedPods UncountedTerminatedPods?
  ready int32?

UncountedTerminatedPods
  succeeded [UID]
  failed [UID]

JobCondition
  type JobConditionType!
  status core.ConditionStatus!
  lastProbeTime Time
  lastTransitionTime Time
  reason string
  message string

JobTemplateSpec
  metadata ObjectMeta
  spec JobSpec

CronJob -- makes jobs by the clock.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec CronJobSpec
  status CronJobStatus

CronJobSpec
  schedule string!
  timeZone string?
  startingDeadlineSeconds int64?
  concurrencyPolicy ConcurrencyPolicy =Allow
  suspend bool? =false
  jobTemplate JobTemplateSpec!
  successfulJobsHistoryLimit int32? =3
  failedJobsHistoryLimit int32? =1

CronJobStatus
  active [core.ObjectReference]
  lastScheduleTime Time?
  lastSuccessfulTime Time?
"""

POLICY = """
UnhealthyPodEvictionPolicyType = string

PodDisruptionBudget -- how many of a set of pods may be evicted at a time.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec PodDisruptionBudgetSpec
  status PodDisruptionBudgetStatus

PodDisruptionBudgetSpec
  minAvailable IntOrString?
  selector LabelSelector? ~replace
  maxUnavailable IntOrString?
  unhealthyPodEvictionPolicy UnhealthyPodEvictionPolicyType?

PodDisruptionBudgetStatus
  observedGeneration int64
  disruptedPods {Time}
  disruptionsAllowed int32!
  currentHealthy int32!
  desiredHealthy int32!
  expectedPods int32!
  conditions [Condition] ~merge:type

Eviction -- asks for a pod to be deleted if its budgets allow it.
  kind string
  apiVersion string
  metadata ObjectMeta
  deleteOptions DeleteOptions?
"""

AUTOSCALING = """
Scale -- the number of pods of a workload.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec ScaleSpec
  status ScaleStatus

ScaleSpec
  replicas int32

ScaleStatus
  replicas int32!
  selector string
"""
