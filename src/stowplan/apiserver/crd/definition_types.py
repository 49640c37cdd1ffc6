"""Types of apiextensions.k8s.io/v1 and their defaults.

Source: apiextensions-apiserver v0.36, pkg/apis/apiextensions/v1.
"""

from __future__ import annotations

from stowplan.objects.encoding.tree import Tree

TYPES = """
ConversionStrategyType ResourceScope ConditionStatus CustomResourceDefinitionConditionType = string
FieldValueErrorReason JSONSchemaURL = string

CustomResourceDefinition -- defines a custom kind.
  +PartialObjectMetadata
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
  +core.ConditionChange
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


def set_definition_defaults(one: Tree) -> None:
    """Names derived from others, conversion and deprecation warnings."""
    spec = one["spec"]
    names = spec["names"]
    kind = names["kind"]
    if not names.get("singular") and kind:
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})
    webhook = spec["conversion"].get("webhook", {}).get("clientConfig", {}).get("service")
    if webhook is not None:
        webhook.setdefault("port", 443)
    for version in spec["versions"] or ():
        if version.get("deprecated") and "deprecationWarning" not in version:
            version["deprecationWarning"] = (
                f"{spec['group']}/{version['name']} {names['kind']} is deprecated"
            )
