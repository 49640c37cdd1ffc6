"""Types of authorization.k8s.io/v1 and authentication.k8s.io/v1, as `type_notation` reads them."""

AUTHORIZATION_TYPES = """
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

AUTHENTICATION_TYPES = """
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
