"""Types of pods and their containers, and references to objects (core/v1).

Source: names, types and marks of the fields as in k8s.io/api v0.36; the texts are our own.
"""

POD_TYPES = """
Protocol URIScheme PullPolicy MountPropagationMode RecursiveReadOnlyMode Capability Signal = string
ResourceResizeRestartPolicy PreemptionPolicy TerminationMessagePolicy ConditionStatus = string
ResourceHealthStatus ResourceID PodPhase PodConditionType PodResizeStatus RestartPolicy = string
ContainerRestartPolicy ContainerRestartRuleAction ContainerRestartRuleOnExitCodesOperator = string
DNSPolicy NodeSelectorOperator TaintEffect TolerationOperator OSName ResourceName = string
UnsatisfiableConstraintAction NodeInclusionPolicy PodFSGroupChangePolicy ProcMountType = string
SupplementalGroupsPolicy PodSELinuxChangePolicy SeccompProfileType AppArmorProfileType = string
PodQOSClass = string
ResourceList = {roundedQuantity}

Pod -- a group of containers that run on one node.
  +PartialObjectMetadata
  spec PodSpec -- desired state.
  status PodStatus -- last observed state.

PodSpec -- desired state of a pod.
  volumes [Volume] ~merge,retainKeys:name -- volumes that the containers can mount.
  initContainers [Container] ~merge:name -- run in order before the containers start.
  containers [Container]! ~merge:name -- at least one; they run in parallel.
  ephemeralContainers [EphemeralContainer] ~merge:name -- added to a running pod for debugging.
  restartPolicy RestartPolicy =Always -- Always, OnFailure or Never.
  terminationGracePeriodSeconds int64? =30 -- time to stop gracefully.
  activeDeadlineSeconds int64? -- the pod fails after this time.
  dnsPolicy DNSPolicy =ClusterFirst
  nodeSelector {string} -- labels that the node must have.
  serviceAccountName string
  serviceAccount string -- deprecated name of serviceAccountName.
  automountServiceAccountToken bool?
  nodeName string -- the node it runs on; set by the scheduler.
  hostNetwork bool
  hostPID bool
  hostIPC bool
  shareProcessNamespace bool?
  securityContext PodSecurityContext? ={}
  imagePullSecrets [LocalObjectReference] ~merge:name
  hostname string
  subdomain string
  affinity Affinity? -- scheduling constraints on nodes and other pods.
  schedulerName string =default-scheduler -- the scheduler of the pod.
  tolerations [Toleration] -- taints of nodes that the pod tolerates.
  hostAliases [HostAlias] ~merge:ip
  priorityClassName string -- the PriorityClass of the pod.
  priority int32? -- pods of higher priority are scheduled first and may preempt.
  dnsConfig PodDNSConfig?
  readinessGates [PodReadinessGate] -- conditions that must be True for the pod to be ready.
  runtimeClassName string?
  enableServiceLinks bool?
  preemptionPolicy PreemptionPolicy? -- Never, or PreemptLowerPriority.
  overhead ResourceList? -- resources of the pod sandbox.
  topologySpreadConstraints [TopologySpreadConstraint] ~merge:topologyKey -- even spreading.
  setHostnameAsFQDN bool?
  os PodOS?
  hostUsers bool?
  schedulingGates [PodSchedulingGate] ~merge:name -- block scheduling until removed.
  resourceClaims [PodResourceClaim] ~merge,retainKeys:name -- claims of devices.
  resources ResourceRequirements? -- for the pod as a whole.
  hostnameOverride string?
  schedulingGroup PodSchedulingGroup?

Container -- a container of a pod.
  name string! -- unique in the pod.
  image string
  command [string]
  args [string]
  workingDir string
  ports [ContainerPort] ~merge:containerPort
  envFrom [EnvFromSource]
  env [EnvVar] ~merge:name
  resources ResourceRequirements -- resource requests and limits.
  resizePolicy [ContainerResizePolicy]
  restartPolicy ContainerRestartPolicy?
  restartPolicyRules [ContainerRestartRule]
  volumeMounts [VolumeMount] ~merge:mountPath
  volumeDevices [VolumeDevice] ~merge:devicePath
  livenessProbe Probe? -- the container is restarted if it fails.
  readinessProbe Probe? -- the pod gets no traffic while it fails.
  startupProbe Probe? -- the other probes start after it succeeds.
  lifecycle Lifecycle?
  terminationMessagePath string =/dev/termination-log
  terminationMessagePolicy TerminationMessagePolicy =File
  imagePullPolicy PullPolicy
  securityContext SecurityContext?
  stdin bool
  stdinOnce bool
  tty bool

EphemeralContainer -- a container added to a running pod.
  +Container
  targetContainerName string

ContainerPort -- a port that a container listens on.
  name string
  hostPort int32
  containerPort int32!
  protocol Protocol =TCP
  hostIP string

EnvVar -- an environment variable.
  name string!
  value string
  valueFrom EnvVarSource?

EnvVarSource -- where a variable's value comes from.
  fieldRef ObjectFieldSelector?
  resourceFieldRef ResourceFieldSelector?
  configMapKeyRef ConfigMapKeySelector?
  secretKeyRef SecretKeySelector?
  fileKeyRef FileKeySelector?

FileKeySelector
  volumeName string!
  path string!
  key string!
  optional bool? =false

ObjectFieldSelector
  apiVersion string =v1
  fieldPath string!

ResourceFieldSelector
  containerName string
  resource string!
  divisor Quantity

ConfigMapKeySelector
  name string
  key string!
  optional bool?

SecretKeySelector
  name string
  key string!
  optional bool?

EnvFromSource
  prefix string
  configMapRef ConfigMapEnvSource?
  secretRef SecretEnvSource?

ConfigMapEnvSource
  name string
  optional bool?

SecretEnvSource
  name string
  optional bool?

HTTPHeader
  name string!
  value string!

HTTPGetAction
  path string =/
  port IntOrString!
  host string
  scheme URIScheme =HTTP
  httpHeaders [HTTPHeader]

TCPSocketAction
  port IntOrString!
  host string

GRPCAction
  port int32!
  service string?! =""

ExecAction
  command [string]

SleepAction
  seconds int64!

Probe -- a periodic check of a container.
  exec ExecAction?
  httpGet HTTPGetAction?
  tcpSocket TCPSocketAction?
  grpc GRPCAction?
  initialDelaySeconds int32
  timeoutSeconds int32 =1
  periodSeconds int32 =10
  successThreshold int32 =1
  failureThreshold int32 =3
  terminationGracePeriodSeconds int64?

LifecycleHandler
  exec ExecAction?
  httpGet HTTPGetAction?
  tcpSocket TCPSocketAction?
  sleep SleepAction?

Lifecycle
  postStart LifecycleHandler?
  preStop LifecycleHandler?
  stopSignal Signal?

ContainerResizePolicy
  resourceName ResourceName!
  restartPolicy ResourceResizeRestartPolicy!

ContainerRestartRule
  action ContainerRestartRuleAction
  exitCodes ContainerRestartRuleOnExitCodes?

ContainerRestartRuleOnExitCodes
  operator ContainerRestartRuleOnExitCodesOperator
  values [int32]

Capabilities
  add [Capability]
  drop [Capability]

ResourceRequirements -- requests and limits of resources.
  limits ResourceList -- maximum amounts.
  requests ResourceList -- minimum amounts; used for scheduling.
  claims [ResourceClaim] -- names of spec.resourceClaims.

ResourceClaim
  name string!
  request string

SecurityContext
  capabilities Capabilities?
  privileged bool?
  seLinuxOptions SELinuxOptions?
  windowsOptions WindowsSecurityContextOptions?
  runAsUser int64?
  runAsGroup int64?
  runAsNonRoot bool?
  readOnlyRootFilesystem bool?
  allowPrivilegeEscalation bool?
  procMount ProcMountType?
  seccompProfile SeccompProfile?
  appArmorProfile AppArmorProfile?

PodSecurityContext
  seLinuxOptions SELinuxOptions?
  windowsOptions WindowsSecurityContextOptions?
  runAsUser int64?
  runAsGroup int64?
  runAsNonRoot bool?
  supplementalGroups [int64]
  supplementalGroupsPolicy SupplementalGroupsPolicy?
  fsGroup int64?
  sysctls [Sysctl]
  fsGroupChangePolicy PodFSGroupChangePolicy?
  seccompProfile SeccompProfile?
  appArmorProfile AppArmorProfile?
  seLinuxChangePolicy PodSELinuxChangePolicy?

SELinuxOptions
  user string
  role string
  type string
  level string

WindowsSecurityContextOptions
  gmsaCredentialSpecName string?
  gmsaCredentialSpec string?
  runAsUserName string?
  hostProcess bool?

SeccompProfile
  type SeccompProfileType!
  localhostProfile string?

AppArmorProfile
  type AppArmorProfileType!
  localhostProfile string?

Sysctl
  name string!
  value string!

NodeSelector -- terms are ORed.
  nodeSelectorTerms [NodeSelectorTerm]!

NodeSelectorTerm -- requirements are ANDed.
  matchExpressions [NodeSelectorRequirement] -- on labels.
  matchFields [NodeSelectorRequirement] -- on metadata.name.

NodeSelectorRequirement
  key string!
  operator NodeSelectorOperator! -- In, NotIn, Exists, DoesNotExist, Gt or Lt.
  values [string]

Affinity
  nodeAffinity NodeAffinity?
  podAffinity PodAffinity?
  podAntiAffinity PodAntiAffinity?

NodeAffinity
  requiredDuringSchedulingIgnoredDuringExecution NodeSelector?
  preferredDuringSchedulingIgnoredDuringExecution [PreferredSchedulingTerm]

PreferredSchedulingTerm
  weight int32! -- 1 to 100.
  preference NodeSelectorTerm!

PodAffinity
  requiredDuringSchedulingIgnoredDuringExecution [PodAffinityTerm]
  preferredDuringSchedulingIgnoredDuringExecution [WeightedPodAffinityTerm]

PodAntiAffinity
  requiredDuringSchedulingIgnoredDuringExecution [PodAffinityTerm]
  preferredDuringSchedulingIgnoredDuringExecution [WeightedPodAffinityTerm]

WeightedPodAffinityTerm
  weight int32!
  podAffinityTerm PodAffinityTerm!

PodAffinityTerm -- selects pods, and the topology that they are compared in.
  labelSelector LabelSelector?
  namespaces [string]
  topologyKey string!
  namespaceSelector LabelSelector?
  matchLabelKeys [string]
  mismatchLabelKeys [string]

Toleration
  key string
  operator TolerationOperator -- Equal or Exists.
  value string
  effect TaintEffect
  tolerationSeconds int64?

PodReadinessGate
  conditionType PodConditionType!

PodResourceClaim
  name string!
  resourceClaimName string?
  resourceClaimTemplateName string?

PodOS
  name OSName!

PodSchedulingGate
  name string!

PodSchedulingGroup
  podGroupName string?

TopologySpreadConstraint
  maxSkew int32! -- maximum difference of pods between domains.
  topologyKey string! -- node label whose values are the topology domains.
  whenUnsatisfiable UnsatisfiableConstraintAction! -- DoNotSchedule or ScheduleAnyway.
  labelSelector LabelSelector? -- selects the pods that are counted.
  minDomains int32?
  nodeAffinityPolicy NodeInclusionPolicy?
  nodeTaintsPolicy NodeInclusionPolicy?
  matchLabelKeys [string]

HostAlias
  ip string!
  hostnames [string]

PodDNSConfig
  nameservers [string]
  searches [string]
  options [PodDNSConfigOption]

PodDNSConfigOption
  name string
  value string?

PodStatus -- observed state of a pod.
  observedGeneration int64
  phase PodPhase -- Pending, Running, Succeeded, Failed or Unknown.
  conditions [PodCondition] ~merge:type
  message string
  reason string
  nominatedNodeName string -- the node that preemption has chosen for it.
  hostIP string
  hostIPs [HostIP] ~merge:ip
  podIP string
  podIPs [PodIP] ~merge:ip
  startTime Time?
  initContainerStatuses [ContainerStatus]
  containerStatuses [ContainerStatus]
  qosClass PodQOSClass -- Guaranteed, Burstable or BestEffort.
  ephemeralContainerStatuses [ContainerStatus]
  resize PodResizeStatus
  resourceClaimStatuses [PodResourceClaimStatus] ~merge,retainKeys:name
  extendedResourceClaimStatus PodExtendedResourceClaimStatus?
  allocatedResources ResourceList
  resources ResourceRequirements?
  nodeAllocatableResourceClaimStatuses [NodeAllocatableResourceClaimStatus]

ConditionChange
  lastTransitionTime Time
  reason string
  message string

PodCondition
  type PodConditionType!
  observedGeneration int64
  status ConditionStatus!
  lastProbeTime Time
  +ConditionChange

PodIP
  ip string!

HostIP
  ip string!

PodResourceClaimStatus
  name string!
  resourceClaimName string?

PodExtendedResourceClaimStatus
  requestMappings [ContainerExtendedResourceRequest]!
  resourceClaimName string!

ContainerExtendedResourceRequest
  containerName string!
  resourceName string!
  requestName string!

NodeAllocatableResourceClaimStatus
  resourceClaimName string!
  containers [string]
  resources {roundedQuantity}!

ContainerStateWaiting
  reason string
  message string

ContainerStateRunning
  startedAt Time

ContainerStateTerminated
  exitCode int32!
  signal int32
  reason string
  message string
  startedAt Time
  finishedAt Time
  containerID string

ContainerState
  waiting ContainerStateWaiting?
  running ContainerStateRunning?
  terminated ContainerStateTerminated?

ContainerStatus
  name string!
  state ContainerState
  lastState ContainerState
  ready bool!
  restartCount int32!
  image string!
  imageID string!
  containerID string
  started bool?
  allocatedResources ResourceList
  resources ResourceRequirements?
  volumeMounts [VolumeMountStatus] ~merge:mountPath
  user ContainerUser?
  allocatedResourcesStatus [ResourceStatus] ~merge:name
  stopSignal Signal?

ResourceStatus
  name ResourceName!
  resources [ResourceHealth]

ResourceHealth
  resourceID ResourceID!
  health ResourceHealthStatus
  message string?

ContainerUser
  linux LinuxContainerUser?

LinuxContainerUser
  uid int64!
  gid int64!
  supplementalGroups [int64]

VolumeMountStatus
  name string!
  mountPath string!
  readOnly bool
  recursiveReadOnly RecursiveReadOnlyMode?
  volumeStatus VolumeStatus?

VolumeStatus
  image ImageVolumeStatus?

ImageVolumeStatus
  imageRef string

ObjectReference -- reference to an object.
  kind string
  namespace string
  name string
  uid UID
  apiVersion string
  resourceVersion string
  fieldPath string

LocalObjectReference
  name string

TypedLocalObjectReference
  apiGroup string?!
  kind string!
  name string!

TopologySelectorTerm
  matchLabelExpressions [TopologySelectorLabelRequirement]

TopologySelectorLabelRequirement
  key string!
  values [string]!
"""
