"""Fields of `status` that are read here, in the notation of the type tables; others are kept.

Source: as the tables of the kinds.
"""

STATUSES = """
Condition
  type string
  status string
  reason string
  message string
  lastTransitionTime string?
  observedGeneration int64
  transitionID string

ConditionsStatus
  conditions [Condition]

VolcanoJobStatus
  state VolcanoJobState
  minAvailable int32
  taskStatusCount {TaskState}
  pending int32
  running int32
  succeeded int32
  failed int32
  terminating int32
  unknown int32
  version int32
  retryCount int32
  runningDuration string?
  controlledResources {string}
  conditions [Condition]

VolcanoJobState
  phase string
  reason string
  message string
  lastTransitionTime string?

TaskState
  phase {int32}

VolcanoGroupStatus
  phase string
  conditions [Condition]
  running int32
  succeeded int32
  failed int32

VolcanoQueueStatus
  state string
  unknown int32
  pending int32
  running int32
  inqueue int32
  completed int32
  allocated {Quantity}

KaiQueueStatus
  conditions [Condition]
  childQueues [string]
  allocated {Quantity}
  allocatedNonPreemptible {Quantity}
  requested {Quantity}

KaiGroupStatus
  phase string
  conditions [Condition]
  schedulingConditions [Object]
  resourcesStatus KaiResources

KaiResources
  allocated {Quantity}
  allocatedNonPreemptible {Quantity}
  requested {Quantity}

BindRequestStatus
  phase string
  reason string
  failedAttempts int32

WorkloadStatus
  conditions [Condition]
  admission Admission?
  requeueState RequeueState?
  reclaimablePods [PodCount]
  admissionChecks [CheckState]
  accumulatedPastExecutionTimeSeconds int32?

Admission
  clusterQueue string
  podSetAssignments [PodSetAssignment]

PodSetAssignment
  name string
  flavors {string}
  resourceUsage {Quantity}
  count int32?
  topologyAssignment TopologyAssignment?

TopologyAssignment
  levels [string]
  domains [TopologyDomain]
  slices [Object]

TopologyDomain
  values [string]
  count int32

RequeueState
  count int32?
  requeueAt string?

PodCount
  name string
  count int32

CheckState
  name string
  state string
  message string
  lastTransitionTime string?
  podSetUpdates [Object]

KueueQueueStatus
  conditions [Condition]
  pendingWorkloads int32
  reservingWorkloads int32
  admittedWorkloads int32
  flavorsReservation [FlavorUsage]
  flavorsUsage [FlavorUsage]
  fairSharing FairSharingStatus?

FlavorUsage
  name string
  resources [ResourceUsage]

ResourceUsage
  name string
  total Quantity
  borrowed Quantity

FairSharingStatus
  weightedShare int64
  admissionFairSharingStatus Object?
"""

STATUS_TYPES = {
    "volcano/v1.Job": "VolcanoJobStatus",
    "scheduling/v1beta1.PodGroup": "VolcanoGroupStatus",
    "scheduling/v1beta1.Queue": "VolcanoQueueStatus",
    "hypernode/v1.HyperNode": "ConditionsStatus",
    "kai/v2.Queue": "KaiQueueStatus",
    "kai/v2.PodGroup": "KaiGroupStatus",
    "kai/v2.BindRequest": "BindRequestStatus",
    "kueue/v1.Workload": "WorkloadStatus",
    "kueue/v1.ClusterQueue": "KueueQueueStatus",
    "kueue/v1.LocalQueue": "KueueQueueStatus",
    "kueue/v1.Cohort": "KueueQueueStatus",
    "kueue/v1.AdmissionCheck": "ConditionsStatus",
    "jobset/v1.JobSet": "ConditionsStatus",
    "trainer/v1.TrainJob": "ConditionsStatus",
    "kubeflow/v1.PyTorchJob": "ConditionsStatus",
}
"""Type of a kind -> that of its `status`."""
