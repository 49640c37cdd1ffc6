"""Types of authorization.k8s.io/v1 and authentication.k8s.io/v1, as `type_notation` reads them."""

AUTHORIZATION_TYPES = """
ExtraValue = [string]

SubjectAccessReview
  +PartialObjectMetadata
  spec SubjectAccessReviewSpec!
  status SubjectAccessReviewStatus

SelfSubjectAccessReview
  +SubjectAccessReview
  spec SelfSubjectAccessReviewSpec!

LocalSubjectAccessReview
  +SubjectAccessReview

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
  +PartialObjectMetadata
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

AUTHENTICATION_TYPES = """
ExtraValue = [string]

TokenReview
  +PartialObjectMetadata
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

TokenRequest
  +PartialObjectMetadata
  spec TokenRequestSpec!
  status TokenRequestStatus

TokenRequestSpec
  audiences [string]!
  expirationSeconds int64?! =3600
  boundObjectRef BoundObjectReference?!

BoundObjectReference
  kind string
  apiVersion string
  name string
  uid UID

TokenRequestStatus
  token string!
  expirationTimestamp Time!

SelfSubjectReview
  +PartialObjectMetadata
  status SelfSubjectReviewStatus

SelfSubjectReviewStatus
  userInfo UserInfo
"""
