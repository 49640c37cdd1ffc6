"""Storage, scheduling, leases, events, rights and definitions: the smaller groups."""

STORAGE = """
VolumeBindingMode FSGroupPolicy VolumeLifecycleMode = string

StorageClass -- a way to make volumes.
  kind string
  apiVersion string
  metadata ObjectMeta
  provisioner string!
  parameters {string}
  reclaimPolicy core.PersistentVolumeReclaimPolicy? =Delete
  mountOptions [string]
  allowVolumeExpansion bool?
  volumeBindingMode VolumeBindingMode? =Immediate
  allowedTopologies [core.TopologySelectorTerm]

VolumeAttachment
  kind string
  apiVersion string
  metadata ObjectMeta
  spec VolumeAttachmentSpec!
  status VolumeAttachmentStatus

VolumeAttachmentSpec
  attacher string!
  source VolumeAttachmentSource!
  nodeName string!

VolumeAttachmentSource
  persistentVolumeName string?
  inlineVolumeSpec core.PersistentVolumeSpec?

VolumeAttachmentStatus
  attached bool!
  attachmentMetadata {string}
  attachError VolumeError?
  detachError VolumeError?

VolumeError
  time Time
  message string
  errorCode int32?

CSIDriver
  kind string
  apiVersion string
  metadata ObjectMeta
  spec CSIDriverSpec!

CSIDriverSpec
  attachRequired bool? =true
  podInfoOnMount bool? =false
  volumeLifecycleModes [VolumeLifecycleMode] =["Persistent"]
  storageCapacity bool? =false
  fsGroupPolicy FSGroupPolicy? =ReadWriteOnceWithFSType
  tokenRequests [TokenRequest]
  requiresRepublish bool? =false
  seLinuxMount bool? =false
  nodeAllocatableUpdatePeriodSeconds int64?
  serviceAccountTokenInSecrets bool?
  preventPodSchedulingIfMissing bool?

TokenRequest
  audience string!
  expirationSeconds int64?

CSINode
  kind string
  apiVersion string
  metadata ObjectMeta
  spec CSINodeSpec!

CSINodeSpec
  drivers [CSINodeDriver]! ~merge:name

CSINodeDriver
  name string!
  nodeID string!
  topologyKeys [string]!
  allocatable VolumeNodeResources?

VolumeNodeResources
  count int32?

CSIStorageCapacity
  kind string
  apiVersion string
  metadata ObjectMeta
  nodeTopology LabelSelector?
  storageClassName string!
  capacity Quantity?
  maximumVolumeSize Quantity?

VolumeAttributesClass
  kind string
  apiVersion string
  metadata ObjectMeta
  driverName string!
  parameters {string}
"""

CORE_TOPOLOGY = """
TopologySelectorTerm
  matchLabelExpressions [TopologySelectorLabelRequirement]

TopologySelectorLabelRequirement
  key string!
  values [string]!
"""

SCHEDULING = """
PriorityClass -- a name for a priority.
  kind string
  apiVersion string
  metadata ObjectMeta
  value int32!
  globalDefault bool
  description string
  preemptionPolicy core.PreemptionPolicy? =PreemptLowerPriority
"""

COORDINATION = """
CoordinatedLeaseStrategy = string

Lease -- who leads, and until when.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec LeaseSpec

LeaseSpec
  holderIdentity string?
  leaseDurationSeconds int32?
  acquireTime MicroTime?
  renewTime MicroTime?
  leaseTransitions int32?
  strategy CoordinatedLeaseStrategy?
  preferredHolder string?
"""

EVENTS = """
Event -- something that happened to an object.
  kind string
  apiVersion string
  metadata ObjectMeta!
  eventTime MicroTime!
  series EventSeries?
  reportingController string
  reportingInstance string
  action string
  reason string
  regarding core.ObjectReference
  related core.ObjectReference?
  note string
  type string
  deprecatedSource core.EventSource
  deprecatedFirstTimestamp Time
  deprecatedLastTimestamp Time
  deprecatedCount int32

EventSeries
  count int32!
  lastObservedTime MicroTime!
"""

NODE = """
RuntimeClass
  kind string
  apiVersion string
  metadata ObjectMeta
  handler string!
  overhead Overhead?
  scheduling Scheduling?

Overhead
  podFixed core.ResourceList

Scheduling
  nodeSelector {string}
  tolerations [core.Toleration]
"""

RBAC = """
Role
  kind string
  apiVersion string
  metadata ObjectMeta
  rules [PolicyRule]!

RoleBinding
  kind string
  apiVersion string
  metadata ObjectMeta
  subjects [Subject]
  roleRef RoleRef!

ClusterRole
  kind string
  apiVersion string
  metadata ObjectMeta
  rules [PolicyRule]!
  aggregationRule AggregationRule?

ClusterRoleBinding
  kind string
  apiVersion string
  metadata ObjectMeta
  subjects [Subject]
  roleRef RoleRef!

PolicyRule
  verbs [string]!
  apiGroups [string]
  resources [string]
  resourceNames [string]
  nonResourceURLs [string]

Subject
  kind string!
  apiGroup string
  name string!
  namespace string

RoleRef
  apiGroup string!
  kind string!
  name string!

AggregationRule
  clusterRoleSelectors [LabelSelector]
"""

AUTHORIZATION = """
ExtraValue = [string]

SubjectAccessReview
  kind string
  apiVersion string
  metadata ObjectMeta
  spec SubjectAccessReviewSpec!
  status SubjectAccessReviewStatus

SelfSubjectAccessReview
  kind string
  apiVersion string
  metadata ObjectMeta
  spec SelfSubjectAccessReviewSpec!
  status SubjectAccessReviewStatus

LocalSubjectAccessReview
  kind string
  apiVersion string
  metadata ObjectMeta
  spec SubjectAccessReviewSpec!
  status SubjectAccessReviewStatus

SubjectAccessReviewSpec
  resourceAttributes ResourceAttributes?
  nonResourceAttributes NonResourceAttributes?
  user string
  groups [string]
  extra {ExtraValue}
  uid string

SelfSubjectAccessReviewSpec
  resourceAttributes ResourceAttributes?
  nonResourceAttributes NonResourceAttributes?

ResourceAttributes
  namespace string
  verb string
  group string
  version string
  resource string
  subresource string
  name string
  fieldSelector FieldSelectorAttributes?
  labelSelector LabelSelectorAttributes?

LabelSelectorAttributes
  rawSelector string
  requirements [LabelSelectorRequirement]

FieldSelectorAttributes
  rawSelector string
  requirements [FieldSelectorRequirement]

NonResourceAttributes
  path string
  verb string

SubjectAccessReviewStatus
  allowed bool!
  denied bool
  reason string
  evaluationError string

SelfSubjectRulesReview
  kind string
  apiVersion string
  metadata ObjectMeta
  spec SelfSubjectRulesReviewSpec!
  status SubjectRulesReviewStatus

SelfSubjectRulesReviewSpec
  namespace string

SubjectRulesReviewStatus
  resourceRules [ResourceRule]!
  nonResourceRules [NonResourceRule]!
  incomplete bool!
  evaluationError string

ResourceRule
  verbs [string]!
  apiGroups [string]
  resources [string]
  resourceNames [string]

NonResourceRule
  verbs [string]!
  nonResourceURLs [string]
"""

AUTHENTICATION = """
ExtraValue = [string]

TokenReview
  kind string
  apiVersion string
  metadata ObjectMeta
  spec TokenReviewSpec!
  status TokenReviewStatus

TokenReviewSpec
  token string
  audiences [string]

TokenReviewStatus
  authenticated bool
  user UserInfo
  audiences [string]
  error string

UserInfo
  username string
  uid string
  groups [string]
  extra {ExtraValue}

SelfSubjectReview
  kind string
  apiVersion string
  metadata ObjectMeta
  status SelfSubjectReviewStatus

SelfSubjectReviewStatus
  userInfo UserInfo
"""

APIEXTENSIONS = """
ConversionStrategyType ResourceScope ConditionStatus CustomResourceDefinitionConditionType = string
FieldValueErrorReason JSONSchemaURL = string

CustomResourceDefinition -- a kind of object of one's own.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec CustomResourceDefinitionSpec!
  status CustomResourceDefinitionStatus

CustomResourceDefinitionSpec
  group string!
  names CustomResourceDefinitionNames!
  scope ResourceScope! -- Namespaced or Cluster.
  versions [CustomResourceDefinitionVersion]!
  conversion CustomResourceConversion?
  preserveUnknownFields bool

CustomResourceConversion
  strategy ConversionStrategyType!
  webhook WebhookConversion?

WebhookConversion
  clientConfig WebhookClientConfig?
  conversionReviewVersions [string]!

WebhookClientConfig
  url string?
  service ServiceReference?
  caBundle bytes

ServiceReference
  namespace string!
  name string!
  path string?
  port int32?

CustomResourceDefinitionVersion
  name string!
  served bool!
  storage bool!
  deprecated bool
  deprecationWarning string?
  schema CustomResourceValidation?
  subresources CustomResourceSubresources?
  additionalPrinterColumns [CustomResourceColumnDefinition]
  selectableFields [SelectableField]

SelectableField
  jsonPath string!

CustomResourceColumnDefinition
  name string!
  type string!
  format string
  description string
  priority int32
  jsonPath string!

CustomResourceDefinitionNames
  plural string!
  singular string
  shortNames [string]
  kind string!
  listKind string
  categories [string]

CustomResourceDefinitionCondition
  type CustomResourceDefinitionConditionType!
  status ConditionStatus!
  lastTransitionTime Time
  reason string
  message string
  observedGeneration int64

CustomResourceDefinitionStatus
  conditions [CustomResourceDefinitionCondition]!
  acceptedNames CustomResourceDefinitionNames!
  storedVersions [string]!
  observedGeneration int64

CustomResourceValidation
  openAPIV3Schema JSONSchemaProps?

CustomResourceSubresources
  status Object?
  scale CustomResourceSubresourceScale?

CustomResourceSubresourceScale
  specReplicasPath string!
  statusReplicasPath string!
  labelSelectorPath string?

JSONSchemaProps
  id string
  $schema JSONSchemaURL
  $ref string?
  description string
  type string
  format string
  title string
  default JSON?
  maximum float64?
  exclusiveMaximum bool
  minimum float64?
  exclusiveMinimum bool
  maxLength int64?
  minLength int64?
  pattern string
  maxItems int64?
  minItems int64?
  uniqueItems bool
  multipleOf float64?
  enum [JSON]
  maxProperties int64?
  minProperties int64?
  required [string]
  items JSONSchemaProps?
  allOf [JSONSchemaProps]
  oneOf [JSONSchemaProps]
  anyOf [JSONSchemaProps]
  not JSONSchemaProps?
  properties {JSONSchemaProps}
  additionalProperties JSONSchemaProps|bool?
  patternProperties {JSONSchemaProps}
  dependencies {JSON}
  additionalItems JSONSchemaProps|bool?
  definitions {JSONSchemaProps}
  externalDocs ExternalDocumentation?
  example JSON?
  nullable bool
  x-kubernetes-preserve-unknown-fields bool?
  x-kubernetes-embedded-resource bool
  x-kubernetes-int-or-string bool
  x-kubernetes-list-map-keys [string]
  x-kubernetes-list-type string?
  x-kubernetes-map-type string?
  x-kubernetes-validations [ValidationRule] ~merge:rule

ValidationRule
  rule string!
  message string
  messageExpression string
  reason FieldValueErrorReason?
  fieldPath string
  optionalOldSelf bool?

ExternalDocumentation
  description string
  url string
"""
