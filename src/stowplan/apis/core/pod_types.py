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
  dnsPolicy DNSPolicy =ClusterFirst -- ClusterFirst, ClusterFirstWithHostNet, Default or None.
  nodeSelector {string} -- labels that the node must have.
  serviceAccountName string -- the account that the pod's processes act as.
  serviceAccount string -- deprecated name of serviceAccountName.
  automountServiceAccountToken bool? -- mount the account's token; by default true.
  nodeName string -- the node it runs on; set by the scheduler.
  hostNetwork bool -- use the node's network; ports of containers are host ports then.
  hostPID bool -- see the processes of the node.
  hostIPC bool -- share the node's inter-process communication.
  shareProcessNamespace bool? -- containers see each other's processes.
  securityContext PodSecurityContext? ={} -- defaults for all containers, and what concerns the pod.
  imagePullSecrets [LocalObjectReference] ~merge:name -- credentials of image registries.
  hostname string -- host name of the pod; its own name by default.
  subdomain string -- the pod is HOSTNAME.SUBDOMAIN.NAMESPACE.svc in DNS.
  affinity Affinity? -- scheduling constraints on nodes and other pods.
  schedulerName string =default-scheduler -- the scheduler of the pod.
  tolerations [Toleration] -- taints of nodes that the pod tolerates.
  hostAliases [HostAlias] ~merge:ip -- lines added to /etc/hosts.
  priorityClassName string -- the PriorityClass of the pod.
  priority int32? -- pods of higher priority are scheduled first and may preempt.
  dnsConfig PodDNSConfig? -- name servers and search domains, with those of dnsPolicy.
  readinessGates [PodReadinessGate] -- conditions that must be True for the pod to be ready.
  runtimeClassName string? -- RuntimeClass; its overhead and nodes count for scheduling.
  enableServiceLinks bool? -- put Services into environment variables; true by default.
  preemptionPolicy PreemptionPolicy? -- Never, or PreemptLowerPriority.
  overhead ResourceList? -- resources of the pod sandbox.
  topologySpreadConstraints [TopologySpreadConstraint] ~merge:topologyKey -- even spreading.
  setHostnameAsFQDN bool? -- the fully qualified name is the host name.
  os PodOS? -- operating system that the pod needs.
  hostUsers bool? -- false runs the pod in a user namespace of its own.
  schedulingGates [PodSchedulingGate] ~merge:name -- block scheduling until removed.
  resourceClaims [PodResourceClaim] ~merge,retainKeys:name -- claims of devices.
  resources ResourceRequirements? -- for the pod as a whole.
  hostnameOverride string? -- host name, whatever the pod is called.
  schedulingGroup PodSchedulingGroup? -- the PodGroup that it is scheduled with.

Container -- a container of a pod.
  name string! -- unique in the pod.
  image string -- name of the image, with registry, tag or digest.
  command [string] -- replaces the entry point of the image.
  args [string] -- arguments of the command.
  workingDir string -- working directory; that of the image by default.
  ports [ContainerPort] ~merge:containerPort -- ports that it listens on.
  envFrom [EnvFromSource] -- ConfigMaps and Secrets whose keys become variables.
  env [EnvVar] ~merge:name -- environment variables.
  resources ResourceRequirements -- resource requests and limits.
  resizePolicy [ContainerResizePolicy] -- per resource: restart on resize, or not.
  restartPolicy ContainerRestartPolicy? -- of an init container: Always makes it a sidecar.
  restartPolicyRules [ContainerRestartRule] -- restart by exit code.
  volumeMounts [VolumeMount] ~merge:mountPath -- where volumes of the pod appear in the file system.
  volumeDevices [VolumeDevice] ~merge:devicePath -- block devices of the container.
  livenessProbe Probe? -- the container is restarted if it fails.
  readinessProbe Probe? -- the pod gets no traffic while it fails.
  startupProbe Probe? -- the other probes start after it succeeds.
  lifecycle Lifecycle? -- what runs after its start and before its end.
  terminationMessagePath string =/dev/termination-log -- file with the reason of its end.
  terminationMessagePolicy TerminationMessagePolicy =File -- File, or FallbackToLogsOnError.
  imagePullPolicy PullPolicy -- Always, IfNotPresent or Never.
  securityContext SecurityContext? -- user, capabilities, privileges.
  stdin bool -- keep standard input open.
  stdinOnce bool -- close standard input after the first client.
  tty bool -- allocate a terminal.

EphemeralContainer -- a container added to a running pod.
  +Container
  targetContainerName string -- container whose processes it sees.

ContainerPort -- a port that a container listens on.
  name string -- name that Services may refer to.
  hostPort int32 -- port of the node; two pods of a node cannot have one.
  containerPort int32! -- 1 to 65535.
  protocol Protocol =TCP -- TCP, UDP or SCTP.
  hostIP string -- address of the node that hostPort is bound to.

EnvVar -- an environment variable.
  name string! -- name of the variable.
  value string -- $(NAME) is replaced by earlier variables.
  valueFrom EnvVarSource? -- where the value comes from; not with value.

EnvVarSource -- where a variable's value comes from.
  fieldRef ObjectFieldSelector? -- a field of the pod.
  resourceFieldRef ResourceFieldSelector? -- request or limit of a container.
  configMapKeyRef ConfigMapKeySelector? -- a key of a ConfigMap.
  secretKeyRef SecretKeySelector? -- a key of a Secret.
  fileKeyRef FileKeySelector? -- a key in a file of a volume.

FileKeySelector
  volumeName string!
  path string!
  key string!
  optional bool? =false

ObjectFieldSelector
  apiVersion string =v1
  fieldPath string! -- path such as metadata.name or status.podIP.

ResourceFieldSelector
  containerName string -- container; its own where left out.
  resource string! -- such as limits.cpu or requests.memory.
  divisor Quantity -- unit of the value; 1 by default.

ConfigMapKeySelector
  name string -- name of the ConfigMap.
  key string! -- key in it.
  optional bool? -- the container starts also if it is missing.

SecretKeySelector
  name string -- name of the Secret.
  key string! -- key in it.
  optional bool? -- the container starts also if it is missing.

EnvFromSource
  prefix string -- put before each name.
  configMapRef ConfigMapEnvSource? -- all keys of a ConfigMap.
  secretRef SecretEnvSource? -- all keys of a Secret.

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
  path string =/ -- path of the request.
  port IntOrString! -- number, or name of a port of the container.
  host string -- host name; the pod's address by default.
  scheme URIScheme =HTTP -- HTTP or HTTPS.
  httpHeaders [HTTPHeader] -- headers of the request.

TCPSocketAction
  port IntOrString! -- number, or name of a port of the container.
  host string -- host name; the pod's address by default.

GRPCAction
  port int32! -- port of the gRPC health service.
  service string?! ="" -- service that the health request names.

ExecAction
  command [string] -- command line; exit code 0 is success.

SleepAction
  seconds int64! -- how long to wait.

Probe -- a periodic check of a container.
  exec ExecAction? -- run a command in the container.
  httpGet HTTPGetAction? -- send an HTTP request; 200 to 399 is success.
  tcpSocket TCPSocketAction? -- open a connection.
  grpc GRPCAction? -- ask the gRPC health service.
  initialDelaySeconds int32 -- time from the container's start to the first probe.
  timeoutSeconds int32 =1 -- time after which a probe has failed.
  periodSeconds int32 =10 -- time between probes.
  successThreshold int32 =1 -- successes in a row after a failure.
  failureThreshold int32 =3 -- failures in a row that count as failure.
  terminationGracePeriodSeconds int64? -- grace period when this probe ends the container.

LifecycleHandler
  exec ExecAction?
  httpGet HTTPGetAction?
  tcpSocket TCPSocketAction?
  sleep SleepAction?

Lifecycle
  postStart LifecycleHandler? -- runs right after the container's start.
  preStop LifecycleHandler? -- runs before the container is stopped.
  stopSignal Signal? -- signal that stops the container.

ContainerResizePolicy
  resourceName ResourceName! -- cpu or memory.
  restartPolicy ResourceResizeRestartPolicy! -- NotRequired or RestartContainer.

ContainerRestartRule
  action ContainerRestartRuleAction
  exitCodes ContainerRestartRuleOnExitCodes?

ContainerRestartRuleOnExitCodes
  operator ContainerRestartRuleOnExitCodesOperator
  values [int32]

Capabilities
  add [Capability] -- Linux capabilities to add.
  drop [Capability] -- Linux capabilities to remove; ALL removes every one.

ResourceRequirements -- requests and limits of resources.
  limits ResourceList -- maximum amounts.
  requests ResourceList -- minimum amounts; used for scheduling.
  claims [ResourceClaim] -- names of spec.resourceClaims.

ResourceClaim
  name string! -- name in spec.resourceClaims of the pod.
  request string -- request of the claim; all of them where left out.

SecurityContext
  capabilities Capabilities? -- Linux capabilities.
  privileged bool? -- as root on the node.
  seLinuxOptions SELinuxOptions? -- SELinux label.
  windowsOptions WindowsSecurityContextOptions?
  runAsUser int64? -- user ID of the process.
  runAsGroup int64? -- group ID of the process.
  runAsNonRoot bool? -- refuse to start as root.
  readOnlyRootFilesystem bool? -- root file system cannot be written.
  allowPrivilegeEscalation bool? -- a process may gain more than its parent has.
  procMount ProcMountType? -- Default or Unmasked.
  seccompProfile SeccompProfile? -- system calls that are allowed.
  appArmorProfile AppArmorProfile? -- AppArmor profile.

PodSecurityContext
  seLinuxOptions SELinuxOptions? -- SELinux label of all containers.
  windowsOptions WindowsSecurityContextOptions?
  runAsUser int64? -- user ID of all containers.
  runAsGroup int64? -- group ID of all containers.
  runAsNonRoot bool? -- refuse to start a container as root.
  supplementalGroups [int64] -- further groups of the first process.
  supplementalGroupsPolicy SupplementalGroupsPolicy? -- Merge with those of the image, or Strict.
  fsGroup int64? -- group that owns the volumes.
  sysctls [Sysctl] -- kernel parameters of the pod.
  fsGroupChangePolicy PodFSGroupChangePolicy? -- Always or OnRootMismatch.
  seccompProfile SeccompProfile? -- system calls that are allowed.
  appArmorProfile AppArmorProfile? -- AppArmor profile.
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
  type SeccompProfileType! -- RuntimeDefault, Localhost or Unconfined.
  localhostProfile string? -- file of the node, with type Localhost.

AppArmorProfile
  type AppArmorProfileType! -- RuntimeDefault, Localhost or Unconfined.
  localhostProfile string? -- profile of the node, with type Localhost.

Sysctl
  name string! -- name of the parameter.
  value string! -- its value.

NodeSelector -- terms are ORed.
  nodeSelectorTerms [NodeSelectorTerm]! -- one of them must match.

NodeSelectorTerm -- requirements are ANDed.
  matchExpressions [NodeSelectorRequirement] -- on labels.
  matchFields [NodeSelectorRequirement] -- on metadata.name.

NodeSelectorRequirement
  key string! -- label of the node, or metadata.name.
  operator NodeSelectorOperator! -- In, NotIn, Exists, DoesNotExist, Gt or Lt.
  values [string] -- for In and NotIn; one integer for Gt and Lt.

Affinity
  nodeAffinity NodeAffinity? -- which nodes, by label.
  podAffinity PodAffinity? -- near which pods.
  podAntiAffinity PodAntiAffinity? -- away from which pods.

NodeAffinity
  requiredDuringSchedulingIgnoredDuringExecution NodeSelector? -- the node must match.
  preferredDuringSchedulingIgnoredDuringExecution [PreferredSchedulingTerm] -- add to the score.

PreferredSchedulingTerm
  weight int32! -- 1 to 100.
  preference NodeSelectorTerm! -- what the node should match.

PodAffinity
  requiredDuringSchedulingIgnoredDuringExecution [PodAffinityTerm] -- all terms must be met.
  preferredDuringSchedulingIgnoredDuringExecution [WeightedPodAffinityTerm] -- add to the score.

PodAntiAffinity
  requiredDuringSchedulingIgnoredDuringExecution [PodAffinityTerm] -- none may be violated.
  preferredDuringSchedulingIgnoredDuringExecution [WeightedPodAffinityTerm] -- lower the score.

WeightedPodAffinityTerm
  weight int32! -- 1 to 100.
  podAffinityTerm PodAffinityTerm! -- pods and topology.

PodAffinityTerm -- selects pods, and the topology that they are compared in.
  labelSelector LabelSelector? -- which pods; none without it.
  namespaces [string] -- namespaces of these pods; the pod's own by default.
  topologyKey string! -- node label; nodes of one value are one place.
  namespaceSelector LabelSelector? -- namespaces by label, besides those named.
  matchLabelKeys [string] -- pods with the same values of these labels.
  mismatchLabelKeys [string] -- pods with other values of these labels.

Toleration
  key string -- key of the taint; empty with Exists is every taint.
  operator TolerationOperator -- Equal or Exists.
  value string -- value of the taint, with Equal.
  effect TaintEffect -- effect of the taint; empty is every effect.
  tolerationSeconds int64? -- time that NoExecute is tolerated; without it for ever.

PodReadinessGate
  conditionType PodConditionType! -- condition of the pod.

PodResourceClaim
  name string! -- name by which containers refer to it.
  resourceClaimName string? -- a claim that exists in the namespace.
  resourceClaimTemplateName string? -- a claim is made from it for this pod.

PodOS
  name OSName! -- linux or windows.

PodSchedulingGate
  name string! -- name of the gate.

PodSchedulingGroup
  podGroupName string? -- PodGroup in the namespace.

TopologySpreadConstraint
  maxSkew int32! -- maximum difference of pods between domains.
  topologyKey string! -- node label whose values are the topology domains.
  whenUnsatisfiable UnsatisfiableConstraintAction! -- DoNotSchedule or ScheduleAnyway.
  labelSelector LabelSelector? -- selects the pods that are counted.
  minDomains int32? -- with fewer domains the least count is 0.
  nodeAffinityPolicy NodeInclusionPolicy? -- Honor or Ignore the pod's node affinity.
  nodeTaintsPolicy NodeInclusionPolicy? -- Honor or Ignore taints of nodes.
  matchLabelKeys [string] -- pods with the same values of these labels.

HostAlias
  ip string! -- address.
  hostnames [string] -- names of the address.

PodDNSConfig
  nameservers [string] -- addresses of name servers.
  searches [string] -- search domains.
  options [PodDNSConfigOption] -- options of the resolver.

PodDNSConfigOption
  name string
  value string?

PodStatus -- observed state of a pod.
  observedGeneration int64 -- generation that the status belongs to.
  phase PodPhase -- Pending, Running, Succeeded, Failed or Unknown.
  conditions [PodCondition] ~merge:type -- PodScheduled, ContainersReady, Ready and others.
  message string -- why it is in this state.
  reason string -- why it is in this state, in a word: Evicted.
  nominatedNodeName string -- the node that preemption has chosen for it.
  hostIP string -- address of the node.
  hostIPs [HostIP] ~merge:ip -- addresses of the node.
  podIP string -- address of the pod.
  podIPs [PodIP] ~merge:ip -- addresses of the pod, one per family.
  startTime Time? -- when the kubelet accepted it.
  initContainerStatuses [ContainerStatus] -- states of its init containers.
  containerStatuses [ContainerStatus] -- states of its containers.
  qosClass PodQOSClass -- Guaranteed, Burstable or BestEffort.
  ephemeralContainerStatuses [ContainerStatus] -- states of its ephemeral containers.
  resize PodResizeStatus -- state of a resize.
  resourceClaimStatuses [PodResourceClaimStatus] ~merge,retainKeys:name -- its own claims.
  extendedResourceClaimStatus PodExtendedResourceClaimStatus? -- claim for extended resources.
  allocatedResources ResourceList -- resources that the node has set aside for the pod.
  resources ResourceRequirements? -- requests and limits in force.
  nodeAllocatableResourceClaimStatuses [NodeAllocatableResourceClaimStatus]

ConditionChange
  lastTransitionTime Time -- when the status changed last.
  reason string -- why, in a word.
  message string -- why, in a sentence.

PodCondition
  type PodConditionType! -- PodScheduled, Ready, DisruptionTarget and others.
  observedGeneration int64 -- generation that the condition belongs to.
  status ConditionStatus! -- True, False or Unknown.
  lastProbeTime Time -- when it was last looked at.
  +ConditionChange

PodIP
  ip string!

HostIP
  ip string!

PodResourceClaimStatus
  name string! -- name in spec.resourceClaims.
  resourceClaimName string? -- the claim; empty where none is needed.

PodExtendedResourceClaimStatus
  requestMappings [ContainerExtendedResourceRequest]! -- resource of a container to request.
  resourceClaimName string! -- the claim.

ContainerExtendedResourceRequest
  containerName string! -- container of the pod.
  resourceName string! -- extended resource.
  requestName string! -- request of the claim.

NodeAllocatableResourceClaimStatus
  resourceClaimName string!
  containers [string]
  resources {roundedQuantity}!

ContainerStateWaiting
  reason string -- why it does not run, in a word.
  message string -- why it does not run.

ContainerStateRunning
  startedAt Time -- when it started.

ContainerStateTerminated
  exitCode int32! -- exit code of the process.
  signal int32 -- signal that ended it.
  reason string -- why, in a word: OOMKilled.
  message string -- why, in a sentence.
  startedAt Time -- when it started.
  finishedAt Time -- when it ended.
  containerID string

ContainerState
  waiting ContainerStateWaiting? -- it has not started.
  running ContainerStateRunning? -- it runs.
  terminated ContainerStateTerminated? -- it has ended.

ContainerStatus
  name string! -- name of the container.
  state ContainerState -- present state.
  lastState ContainerState -- state before the last restart.
  ready bool! -- passes its readiness probe.
  restartCount int32! -- how often it was restarted.
  image string! -- image that runs.
  imageID string! -- digest of the image.
  containerID string -- RUNTIME://ID.
  started bool? -- has passed its startup probe.
  allocatedResources ResourceList -- what the node has set aside.
  resources ResourceRequirements? -- requests and limits in force.
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
  kind string -- kind of the object.
  namespace string -- namespace of the object.
  name string -- name of the object.
  uid UID -- uid of the object.
  apiVersion string -- group and version.
  resourceVersion string -- version of the object.
  fieldPath string -- part of the object.

LocalObjectReference
  name string -- an object of the same namespace.

TypedLocalObjectReference
  apiGroup string?! -- API group; empty for core.
  kind string! -- kind of the object.
  name string! -- name of the object.

TopologySelectorTerm
  matchLabelExpressions [TopologySelectorLabelRequirement] -- all must match.

TopologySelectorLabelRequirement
  key string! -- label of the node.
  values [string]! -- one of them.
"""
