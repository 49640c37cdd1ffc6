"""ValidatingAdmissionPolicy: writes that an expression refuses are rejected.

Differs: audit annotations and the action Audit have no effect, as admission keeps no audit log.
Source: apiserver v1.36, pkg/admission/plugin/policy/validating: dispatcher.go, validator.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.resource import ApiCall, Resource
from stowplan.apiserver.admission.admission_plugin import AdmissionPluginBase, admission_forbidden
from stowplan.apiserver.admission.policies.policy_bindings import (
    PoliciesInForce,
    PolicyConfigurationError,
    PolicyInForce,
    check_conditions,
    matched_policy,
    matches_binding,
    params_of,
)
from stowplan.apiserver.admission.policies.policy_environments import (
    CompiledExpression,
    policy_compiler,
)
from stowplan.apiserver.admission.policies.policy_kinds import (
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
)
from stowplan.apiserver.admission.policies.policy_variables import (
    Evaluation,
    OutOfBudget,
    evaluation,
)
from stowplan.apiserver.admission.policies.request_matching import AdmissionAttributes, is_exempt
from stowplan.apiserver.expressions.messages import message_of
from stowplan.cel.cel_types import BOOL, NULL, STRING
from stowplan.objects.encoding.tree import Tree

_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


@dataclass(frozen=True)
class CompiledValidations:
    """The expressions of a policy. messages: of each validation, None for one without."""

    conditions: list[CompiledExpression]
    variables: dict[str, CompiledExpression]
    validations: list[CompiledExpression]
    messages: list[CompiledExpression | None]
    annotations: list[CompiledExpression]


def compiled_validations(spec: Tree) -> CompiledValidations:
    """Compile the expressions of a policy."""
    compiler = policy_compiler(spec)
    texts = [
        (one["expression"], one.get("messageExpression", ""))
        for one in spec.get("validations") or ()
    ]
    messages = [
        compiler.compile(text, (STRING,), has_authorizer=False) if text else None
        for _, text in texts
    ]
    return CompiledValidations(
        [compiler.compile(one["expression"], (BOOL,)) for one in spec.get("matchConditions") or ()],
        compiler.variables or {},
        [compiler.compile(text, (BOOL,)) for text, _ in texts],
        messages,
        [
            compiler.compile(one["valueExpression"].strip(), (STRING, NULL))
            for one in spec.get("auditAnnotations") or ()
        ],
    )


@dataclass(frozen=True)
class PolicyDenial:
    """A refusal. binding: its name, "" where the policy itself is at fault. is_forced: it denies
    whatever the actions of the binding."""

    policy: str
    binding: str
    message: str
    reason: str = "Invalid"
    is_forced: bool = False

    def text(self) -> str:
        """The text of the error."""
        binding = f" with binding '{self.binding}'" if self.binding else ""
        start = f"ValidatingAdmissionPolicy '{self.policy}'{binding}"
        return f"{start} denied request: {self.message}"


class ValidatingAdmissionPolicies(AdmissionPluginBase):
    """Rejects what the policies in force refuse."""

    repeatable = True

    def __init__(self) -> None:
        self._policies = PoliciesInForce(
            VALIDATING_POLICIES, VALIDATING_BINDINGS, compiled_validations
        )

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403, 413 or 422 of the first refusal."""
        policies = self._policies.all(call)
        if not policies or is_exempt(call):
            return
        request = AdmissionAttributes(call, obj, old)
        first: PolicyDenial | None = None
        for policy in policies:
            for denial in _denials(request, policy):
                first = first or denial
        if first is not None:
            raise _refusal(call, obj or old, first)


def _refusal(call: ApiCall, obj: Tree | None, denial: PolicyDenial) -> ApiError:
    error = admission_forbidden(call, obj, denial.text())
    details = {**(error.details or {}), "causes": [{"message": denial.text()}]}
    code = _CODES.get(denial.reason, 422)
    return ApiError(code, denial.reason, error.message, details)


def _denials(
    request: AdmissionAttributes, policy: PolicyInForce[CompiledValidations]
) -> Iterator[PolicyDenial]:
    """What a policy denies; its warnings are given."""
    try:
        matched = matched_policy(request, policy.policy)
    except PolicyConfigurationError as error:
        if not policy.ignores_errors:
            yield PolicyDenial(policy.name, "", str(error))
        return
    if matched is None:
        return
    for binding in policy.bindings:
        if not matches_binding(request, binding):
            continue
        name = binding["metadata"]["name"]
        try:
            params = params_of(request, policy.policy, binding)
        except PolicyConfigurationError as error:
            if not policy.ignores_errors:
                yield PolicyDenial(policy.name, name, str(error))
            continue
        actions = binding["spec"].get("validationActions") or ()
        for one in params:
            for denial in _decisions(request, policy, name, matched, one):
                if "Deny" in actions or denial.is_forced:
                    yield denial
                elif "Warn" in actions:
                    start = f"Validation failed for ValidatingAdmissionPolicy '{policy.name}'"
                    text = f"{start} with binding '{name}': {denial.message}"
                    request.call.warnings.append(text)


def _decisions(
    request: AdmissionAttributes,
    policy: PolicyInForce[CompiledValidations],
    binding: str,
    matched: Resource,
    params: Tree | None,
) -> Iterator[PolicyDenial]:
    """Refusals of a policy for one parameter."""
    compiled = policy.compiled
    held = check_conditions(request, matched, params, compiled.conditions, compiled.variables)
    if held.error and not policy.ignores_errors:
        yield PolicyDenial(policy.name, binding, held.error)
    if not held.holds:
        return
    run = evaluation(request, matched, params, compiled.variables)
    try:
        found = [run.outcome(one) for one in compiled.validations]
    except OutOfBudget as error:
        if not policy.ignores_errors:
            yield PolicyDenial(policy.name, binding, str(error))
        return
    for at, one in enumerate(found):
        if one.error:
            if not policy.ignores_errors:
                yield PolicyDenial(policy.name, binding, one.error)
        elif one.value is not True:
            validation = policy.policy["spec"]["validations"][at]
            try:
                message = _message(run, validation, compiled.messages[at])
            except OutOfBudget as error:
                if not policy.ignores_errors:
                    text = f"failed messageExpression: {error}"
                    yield PolicyDenial(policy.name, binding, text)
                continue
            yield PolicyDenial(policy.name, binding, message, validation.get("reason", "Invalid"))
    yield from _annotation_denials(request, policy, binding, matched, params)


def _message(run: Evaluation, validation: Tree, compiled: CompiledExpression | None) -> str:
    text = "" if compiled is None else message_of(run.outcome(compiled))
    return (
        text
        or validation.get("message", "").strip()
        or f"failed expression: {validation['expression'].strip()}"
    )


def _annotation_denials(
    request: AdmissionAttributes,
    policy: PolicyInForce[CompiledValidations],
    binding: str,
    matched: Resource,
    params: Tree | None,
) -> Iterator[PolicyDenial]:
    """Errors of audit annotations, which deny with the failure policy Fail."""
    if policy.ignores_errors or not policy.compiled.annotations:
        return
    run = evaluation(request, matched, params, policy.compiled.variables)
    try:
        for one in policy.compiled.annotations:
            found = run.outcome(one)
            if found.error:
                yield PolicyDenial(policy.name, binding, found.error, is_forced=True)
    except OutOfBudget as error:
        yield PolicyDenial(policy.name, binding, str(error))
