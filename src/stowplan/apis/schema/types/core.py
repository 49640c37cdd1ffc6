"""Nodes, namespaces, services, events and the other kinds of core/v1."""

CORE = """
ReplicationControllerConditionType ServiceAffinity ServiceType IPFamily IPFamilyPolicy = string
ServiceInternalTrafficPolicy ServiceExternalTrafficPolicy UniqueVolumeName NodePhase = string
NodeConditionType NodeAddressType FinalizerName NamespacePhase NamespaceConditionType = string
LimitType ResourceQuotaScope ScopeSelectorOperator SecretType ComponentConditionType = string
LoadBalancerIPMode = string

Node -- a machine.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec NodeSpec
  status NodeStatus

NodeSpec
  podCIDR string
  podCIDRs [string] ~merge
  providerID string
  unschedulable bool -- no more pods are placed here.
  taints [Taint] -- keep pods away that do not tolerate them.
  configSource NodeConfigSource?
  externalID string

NodeConfigSource
  configMap ConfigMapNodeConfigSource?

ConfigMapNodeConfigSource
  namespace string!
  name string!
  uid UID
  resourceVersion string
  kubeletConfigKey string!

NodeStatus
  capacity ResourceList -- all that the machine has.
  allocatable ResourceList -- what pods can have of it.
  phase NodePhase
  conditions [NodeCondition] ~merge:type
  addresses [NodeAddress] ~merge:type
  daemonEndpoints NodeDaemonEndpoints
  nodeInfo NodeSystemInfo
  images [ContainerImage] -- images that are already there.
  volumesInUse [UniqueVolumeName]
  volumesAttached [AttachedVolume]
  config NodeConfigStatus?
  runtimeHandlers [NodeRuntimeHandler]
  features NodeFeatures?
  declaredFeatures [string]

NodeConfigStatus
  assigned NodeConfigSource?
  active NodeConfigSource?
  lastKnownGood NodeConfigSource?
  error string

NodeDaemonEndpoints
  kubeletEndpoint DaemonEndpoint

DaemonEndpoint
  Port int32!

NodeSystemInfo
  machineID string!
  systemUUID string!
  bootID string!
  kernelVersion string!
  osImage string!
  containerRuntimeVersion string!
  kubeletVersion string!
  kubeProxyVersion string!
  operatingSystem string!
  architecture string!
  swap NodeSwapStatus?

NodeSwapStatus
  capacity int64?

NodeRuntimeHandler
  name string!
  features NodeRuntimeHandlerFeatures?

NodeRuntimeHandlerFeatures
  recursiveReadOnlyMounts bool?
  userNamespaces bool?

NodeFeatures
  supplementalGroupsPolicy bool?

AttachedVolume
  name UniqueVolumeName!
  devicePath string!

ContainerImage
  names [string]!
  sizeBytes int64

NodeCondition
  type NodeConditionType!
  status ConditionStatus!
  lastHeartbeatTime Time
  lastTransitionTime Time
  reason string
  message string

NodeAddress
  type NodeAddressType!
  address string!

Namespace -- a space for names.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec NamespaceSpec
  status NamespaceStatus

NamespaceSpec
  finalizers [FinalizerName]

NamespaceStatus
  phase NamespacePhase =Active
  conditions [NamespaceCondition] ~merge:type

NamespaceCondition
  type NamespaceConditionType!
  status ConditionStatus!
  lastTransitionTime Time
  reason string
  message string

ObjectReference -- names any object.
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

Service -- one address for several pods.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec ServiceSpec
  status ServiceStatus

ServiceSpec
  ports [ServicePort] ~merge:port
  selector {string} -- the pods behind it.
  clusterIP string
  clusterIPs [string]
  type ServiceType =ClusterIP
  externalIPs [string]
  sessionAffinity ServiceAffinity =None
  loadBalancerIP string
  loadBalancerSourceRanges [string]
  externalName string
  externalTrafficPolicy ServiceExternalTrafficPolicy
  healthCheckNodePort int32
  publishNotReadyAddresses bool
  sessionAffinityConfig SessionAffinityConfig?
  ipFamilies [IPFamily]
  ipFamilyPolicy IPFamilyPolicy?
  allocateLoadBalancerNodePorts bool?
  loadBalancerClass string?
  internalTrafficPolicy ServiceInternalTrafficPolicy?
  trafficDistribution string?

ServicePort
  name string
  protocol Protocol =TCP
  appProtocol string?
  port int32!
  targetPort IntOrString
  nodePort int32

SessionAffinityConfig
  clientIP ClientIPConfig?

ClientIPConfig
  timeoutSeconds int32?

ServiceStatus
  loadBalancer LoadBalancerStatus
  conditions [Condition] ~merge:type

LoadBalancerStatus
  ingress [LoadBalancerIngress]

LoadBalancerIngress
  ip string
  hostname string
  ipMode LoadBalancerIPMode?
  ports [PortStatus]

PortStatus
  port int32!
  protocol Protocol!
  error string?

Endpoints
  kind string
  apiVersion string
  metadata ObjectMeta
  subsets [EndpointSubset]

EndpointSubset
  addresses [EndpointAddress]
  notReadyAddresses [EndpointAddress]
  ports [EndpointPort]

EndpointAddress
  ip string!
  hostname string
  nodeName string?
  targetRef ObjectReference?

EndpointPort
  name string
  port int32!
  protocol Protocol =TCP
  appProtocol string?

ReplicationController -- keeps a number of equal pods; the old form of ReplicaSet.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec ReplicationControllerSpec
  status ReplicationControllerStatus

ReplicationControllerSpec
  replicas int32? =1
  minReadySeconds int32
  selector {string}
  template PodTemplateSpec?

ReplicationControllerStatus
  replicas int32!
  fullyLabeledReplicas int32
  readyReplicas int32
  availableReplicas int32
  observedGeneration int64
  conditions [ReplicationControllerCondition] ~merge:type

ReplicationControllerCondition
  type ReplicationControllerConditionType!
  status ConditionStatus!
  lastTransitionTime Time
  reason string
  message string

ConfigMap -- settings by name.
  kind string
  apiVersion string
  metadata ObjectMeta
  immutable bool?
  data {string}
  binaryData {bytes}

Secret -- settings by name, not to be shown.
  kind string
  apiVersion string
  metadata ObjectMeta
  immutable bool?
  data {bytes}
  stringData {string}
  type SecretType =Opaque

ServiceAccount -- who a pod acts as.
  kind string
  apiVersion string
  metadata ObjectMeta
  secrets [ObjectReference] ~merge:name
  imagePullSecrets [LocalObjectReference]
  automountServiceAccountToken bool?

Event -- something that happened to an object.
  kind string
  apiVersion string
  metadata ObjectMeta!
  involvedObject ObjectReference!
  reason string
  message string
  source EventSource
  firstTimestamp Time
  lastTimestamp Time
  count int32
  type string
  eventTime MicroTime
  series EventSeries?
  action string
  related ObjectReference?
  reportingComponent string!
  reportingInstance string!

EventSource
  component string
  host string

EventSeries
  count int32
  lastObservedTime MicroTime

LimitRange
  kind string
  apiVersion string
  metadata ObjectMeta
  spec LimitRangeSpec

LimitRangeSpec
  limits [LimitRangeItem]!

LimitRangeItem
  type LimitType!
  max ResourceList
  min ResourceList
  default ResourceList
  defaultRequest ResourceList
  maxLimitRequestRatio ResourceList

ResourceQuota
  kind string
  apiVersion string
  metadata ObjectMeta
  spec ResourceQuotaSpec
  status ResourceQuotaStatus

ResourceQuotaSpec
  hard ResourceList
  scopes [ResourceQuotaScope]
  scopeSelector ScopeSelector?

ScopeSelector
  matchExpressions [ScopedResourceSelectorRequirement]

ScopedResourceSelectorRequirement
  scopeName ResourceQuotaScope!
  operator ScopeSelectorOperator!
  values [string]

ResourceQuotaStatus
  hard ResourceList
  used ResourceList

ComponentStatus
  kind string
  apiVersion string
  metadata ObjectMeta
  conditions [ComponentCondition] ~merge:type

ComponentCondition
  type ComponentConditionType!
  status ConditionStatus!
  message string
  error string
"""
