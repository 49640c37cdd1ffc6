"""The kinds of admissionregistration.k8s.io/v1 that are policies in CEL.

Source: kubernetes v1.36, pkg/registry/admissionregistration, pkg/apis/admissionregistration/v1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan.apis.kind.printing import UNSET, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, Check, StatusStrategy
from stowplan.apis.machinery.resource import ResourceStrategy
from stowplan.apis.validation.field_checks import formatted_selector
from stowplan.apiserver.admission.policies import policy_checks
from stowplan.objects.encoding.tree import Tree

GROUP = "admissionregistration.k8s.io"
VALIDATING_POLICIES = f"{GROUP}/validatingadmissionpolicies"
VALIDATING_BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"
MUTATING_POLICIES = f"{GROUP}/mutatingadmissionpolicies"
MUTATING_BINDINGS = f"{GROUP}/mutatingadmissionpolicybindings"

_SHARED_TYPES = """
FailurePolicyType MatchPolicyType ScopeType OperationType ValidationAction StatusReason = string
ParameterNotFoundActionType PatchType ReinvocationPolicyType = string

ParamKind -- kind of the parameters of a policy.
  apiVersion string
  kind string

MatchResources -- which requests match.
  namespaceSelector LabelSelector? ={}
  objectSelector LabelSelector? ={}
  resourceRules [NamedRuleWithOperations]
  excludeResourceRules [NamedRuleWithOperations]
  matchPolicy MatchPolicyType? =Equivalent

NamedRuleWithOperations
  resourceNames [string]
  operations [OperationType]
  apiGroups [string]
  apiVersions [string]
  resources [string]
  scope ScopeType? =*

MatchCondition -- an expression that must be true for a request to match.
  name string!
  expression string!

Variable -- an expression that others use as variables.NAME.
  name string!
  expression string!

ParamRef -- the parameters of a binding.
  name string
  namespace string
  selector LabelSelector?
  parameterNotFoundAction ParameterNotFoundActionType?
"""
_VALIDATING_TYPES = """
ValidatingAdmissionPolicy -- rejects writes by expressions.
  +PartialObjectMetadata
  spec ValidatingAdmissionPolicySpec
  status ValidatingAdmissionPolicyStatus

ValidatingAdmissionPolicySpec
  paramKind ParamKind?
  matchConstraints MatchResources?
  validations [Validation]
  failurePolicy FailurePolicyType? =Fail
  auditAnnotations [AuditAnnotation]
  matchConditions [MatchCondition] ~merge:name
  variables [Variable] ~merge:name

Validation
  expression string!
  message string
  reason StatusReason?
  messageExpression string

AuditAnnotation
  key string!
  valueExpression string!

ValidatingAdmissionPolicyStatus
  observedGeneration int64
  typeChecking TypeChecking?
  conditions [Condition]

TypeChecking
  expressionWarnings [ExpressionWarning]

ExpressionWarning
  fieldRef string!
  warning string!
"""
_VALIDATING_BINDING_TYPES = """
ValidatingAdmissionPolicyBinding -- applies a policy to requests.
  +PartialObjectMetadata
  spec ValidatingAdmissionPolicyBindingSpec

ValidatingAdmissionPolicyBindingSpec
  policyName string
  paramRef ParamRef?
  matchResources MatchResources?
  validationActions [ValidationAction]
"""
_MUTATING_TYPES = """
MutatingAdmissionPolicy -- changes written objects by expressions.
  +PartialObjectMetadata
  spec MutatingAdmissionPolicySpec

MutatingAdmissionPolicySpec
  paramKind ParamKind?
  matchConstraints MatchResources?
  variables [Variable]
  mutations [Mutation]
  failurePolicy FailurePolicyType? =Fail
  matchConditions [MatchCondition] ~merge:name
  reinvocationPolicy ReinvocationPolicyType

Mutation
  patchType PatchType!
  applyConfiguration ApplyConfiguration?
  jsonPatch JSONPatch?

ApplyConfiguration
  expression string

JSONPatch
  expression string
"""
_MUTATING_BINDING_TYPES = """
MutatingAdmissionPolicyBinding -- applies a mutating policy to requests.
  +PartialObjectMetadata
  spec MutatingAdmissionPolicyBindingSpec

MutatingAdmissionPolicyBindingSpec
  policyName string
  paramRef ParamRef?
  matchResources MatchResources?
"""


def _strategy(check: Check, status: Tree | None = None) -> BuiltinStrategy:
    return BuiltinStrategy(check, status=status, counted=("spec",), unconditional=False)


def _param_kind(obj: Tree) -> str:
    kind = obj["spec"].get("paramKind")
    return UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


def _policy_cells(field: str) -> Any:
    def cells(obj: Tree, now: float) -> Iterable[Any]:
        return (len(obj["spec"].get(field) or ()), _param_kind(obj))

    return cells


def _binding_cells(obj: Tree, now: float) -> Iterable[Any]:
    given = obj["spec"].get("paramRef") or {}
    formatted = UNSET
    if given.get("name"):
        formatted = f"{given.get('namespace') or '*'}/{given['name']}"
    elif given.get("selector") is not None:
        formatted = formatted_selector(given["selector"])
    return (formatted,)


def _kind(
    kind: str,
    types: str,
    strategy: BuiltinStrategy,
    table: PrintedTable,
    status: ResourceStrategy | None = None,
    stored_as: str = "",
) -> KindRegistration:
    return KindRegistration(
        group=GROUP,
        kind=kind,
        types=types,
        namespaced=False,
        strategy=strategy,
        status=status,
        categories=("api-extensions",),
        table=table,
        stored_as=stored_as,
    )


_BINDING_COLUMNS = "Name, PolicyName=spec.policyName, ParamRef, Age"
KINDS = (
    _kind(
        "ValidatingAdmissionPolicy",
        _SHARED_TYPES + _VALIDATING_TYPES,
        _strategy(policy_checks.validating_policy_causes, {}),
        PrintedTable("Name, Validations:integer, ParamKind, Age", _policy_cells("validations")),
        StatusStrategy(),
    ),
    _kind(
        "ValidatingAdmissionPolicyBinding",
        _VALIDATING_BINDING_TYPES,
        _strategy(policy_checks.validating_binding_causes),
        PrintedTable(_BINDING_COLUMNS, _binding_cells),
    ),
    _kind(
        "MutatingAdmissionPolicy",
        _MUTATING_TYPES,
        _strategy(policy_checks.mutating_policy_causes),
        PrintedTable("Name, Mutations:integer, ParamKind, Age", _policy_cells("mutations")),
        stored_as="v1beta1",
    ),
    _kind(
        "MutatingAdmissionPolicyBinding",
        _MUTATING_BINDING_TYPES,
        _strategy(policy_checks.mutating_binding_causes),
        PrintedTable(_BINDING_COLUMNS, _binding_cells),
        stored_as="v1beta1",
    ),
)
