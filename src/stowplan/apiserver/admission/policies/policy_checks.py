"""Validation of policies and bindings.

Source: kubernetes v1.36, pkg/apis/admissionregistration/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_many,
)
from stowplan.apis.machinery.names import (
    label_1035_problems,
    qualified_name_problems,
    subdomain_problems,
)
from stowplan.apis.validation import field_checks
from stowplan.apiserver.admission.policies.policy_environments import (
    JSON_PATCH,
    OBJECT,
    CompiledExpression,
    PolicyCompiler,
)
from stowplan.cel.cel_types import BOOL, NULL, STRING, CelType
from stowplan.cel.tokens import KEYWORDS, RESERVED
from stowplan.objects.encoding.tree import Tree

_FAILURE_POLICIES = ("Fail", "Ignore")
_MATCH_POLICIES = ("Equivalent", "Exact")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_MUTATED_OPERATIONS = ("*", "CREATE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_ACTIONS = ("Audit", "Deny", "Warn")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_PATCH_TYPES = ("ApplyConfiguration", "JSONPatch")
_REINVOCATIONS = ("IfNeeded", "Never")
_CONDITIONS_MAX = 64
_ANNOTATIONS_MAX = 20
_ANNOTATION_BYTES_MAX = 5 * 1024
_IDENTIFIER = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")
_LINE_BREAK = re.compile(r"[\n\r]")


def validating_policy_causes(obj: Tree) -> Iterator[Cause]:
    """Causes of a ValidatingAdmissionPolicy."""
    spec = obj["spec"]
    variables: dict[str, CompiledExpression] | None = {} if spec.get("variables") else None
    compiler = PolicyCompiler(spec.get("paramKind") is not None, variables)
    yield from _policy_head_causes(spec)
    yield from _match_constraints_causes(spec)
    yield from _condition_causes(spec)
    yield from _variable_causes(spec, compiler)
    validations, notes = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not notes:
        text = "validations or auditAnnotations must contain at least one item"
        yield required("spec.validations", text)
        yield required("spec.auditAnnotations", text)
        return
    for at, one in enumerate(validations):
        yield from _validation_causes(one, f"spec.validations[{at}]", compiler)
    yield from _annotation_causes(notes, obj["metadata"].get("name", ""), compiler)


def mutating_policy_causes(obj: Tree) -> Iterator[Cause]:
    """Causes of a MutatingAdmissionPolicy."""
    spec = obj["spec"]
    compiler = PolicyCompiler(spec.get("paramKind") is not None)
    yield from _policy_head_causes(spec)
    yield from _match_constraints_causes(spec)
    if spec.get("matchConstraints") is not None:
        yield from _mutated_operation_causes(spec["matchConstraints"], "spec.matchConstraints")
    yield from _condition_causes(spec)
    yield from _variable_causes(spec, compiler)
    if not spec.get("mutations"):
        yield required("spec.mutations", "mutations must contain at least one item")
    for at, one in enumerate(spec.get("mutations") or ()):
        yield from _mutation_causes(one, f"spec.mutations[{at}]", compiler)
    given = spec.get("reinvocationPolicy", "")
    yield from field_checks.supported_value(given, _REINVOCATIONS, "spec.reinvocationPolicy")


def _policy_head_causes(spec: Tree) -> Iterator[Cause]:
    given = spec.get("failurePolicy")
    if given not in _FAILURE_POLICIES:
        yield not_supported("spec.failurePolicy", given, _FAILURE_POLICIES)
    if spec.get("paramKind") is not None:
        yield from _param_kind_causes(spec["paramKind"], "spec.paramKind")


def _param_kind_causes(given: Tree, path: str) -> Iterator[Cause]:
    version, kind = given.get("apiVersion", ""), given.get("kind", "")
    here = f"{path}.apiVersion"
    if not version:
        yield required(here)
    elif version.count("/") > 1:
        yield invalid(here, version, f"unexpected GroupVersion string: {version}")
    else:
        group, _, name = version.rpartition("/")
        if group and (problems := subdomain_problems(group)):
            yield invalid(here, group, ",".join(problems))
        if not name:
            yield invalid(here, version, "version must be specified")
        elif problems := label_1035_problems(name):
            yield invalid(here, name, ",".join(problems))
    if not kind:
        yield required(f"{path}.kind")
    elif problems := label_1035_problems(kind.lower()):
        text = "may have mixed case, but should otherwise match: " + ",".join(problems)
        yield invalid(f"{path}.kind", kind, text)


def _match_constraints_causes(spec: Tree) -> Iterator[Cause]:
    path, given = "spec.matchConstraints", spec.get("matchConstraints")
    if given is None:
        yield required(path)
        return
    yield from _match_causes(given, path)
    if not given.get("resourceRules"):
        yield required(f"{path}.resourceRules")


def _match_causes(given: Tree, path: str) -> Iterator[Cause]:
    policy = given.get("matchPolicy")
    if policy not in _MATCH_POLICIES:
        yield not_supported(f"{path}.matchPolicy", policy, _MATCH_POLICIES)
    for name in ("namespaceSelector", "objectSelector"):
        yield from field_checks.selector(given.get(name), f"{path}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for at, rule in enumerate(given.get(name) or ()):
            yield from _rule_causes(rule, f"{path}.{name}[{at}]")


def _mutated_operation_causes(given: Tree, path: str) -> Iterator[Cause]:
    """Only creates and updates can be mutated."""
    for rule in given.get("resourceRules") or ():
        for one in rule.get("operations") or ():
            if one not in _MUTATED_OPERATIONS:
                here = f"{path}.resourceRules.operations"
                yield not_supported(here, one, _MUTATED_OPERATIONS)


def _rule_causes(rule: Tree, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, name in enumerate(rule.get("resourceNames") or ()):
        here = f"{path}.resourceNames[{at}]"
        yield from field_checks.path_segment(name, here)
        yield from field_checks.unique(name, seen, here)
    operations = rule.get("operations") or []
    if not operations:
        yield required(f"{path}.operations")
    if len(operations) > 1 and "*" in operations:
        text = "if '*' is present, must not specify other operations"
        yield invalid(f"{path}.operations", operations, text)
    for at, one in enumerate(operations):
        if one not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{at}]", one, _OPERATIONS)
    for name, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(name) or []
        if not values:
            yield required(f"{path}.{name}")
        if len(values) > 1 and "*" in values:
            text = f"if '*' is present, must not specify other {words}"
            yield invalid(f"{path}.{name}", values, text)
    for at, one in enumerate(rule.get("apiVersions") or ()):
        if not one:
            yield required(f"{path}.apiVersions[{at}]")
    yield from _resource_causes(rule.get("resources") or [], f"{path}.resources")
    yield from field_checks.one_of(rule.get("scope"), _SCOPES, f"{path}.scope")


def _resource_causes(resources: list[str], path: str) -> Iterator[Cause]:
    if not resources:
        yield required(path)
    with_any_subresource: set[str] = set()
    of_any_resource: set[str] = set()
    is_plain = False
    for at, one in enumerate(resources):
        here = f"{path}[{at}]"
        if not one:
            yield required(here)
            continue
        resource, slash, sub = one.partition("/")
        if not slash:
            is_plain = one != "*"
            continue
        if resource in with_any_subresource:
            yield invalid(here, one, f"if '{resource}/*' is present, must not specify {one}")
        if sub in of_any_resource:
            yield invalid(here, one, f"if '*/{sub}' is present, must not specify {one}")
        if sub == "*":
            with_any_subresource.add(resource)
        if resource == "*":
            of_any_resource.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and is_plain:
        text = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, resources, text)


def _condition_causes(spec: Tree) -> Iterator[Cause]:
    conditions, has_params = spec.get("matchConditions") or [], spec.get("paramKind") is not None
    return match_condition_causes(conditions, "spec.matchConditions", has_params)


def match_condition_causes(
    conditions: list[Tree], path: str, has_params: bool = False
) -> Iterator[Cause]:
    """Causes of match conditions. has_params: they may use params."""
    if len(conditions) > _CONDITIONS_MAX:
        yield too_many(path, len(conditions), _CONDITIONS_MAX)
    # Conditions are compiled without the variables of the policy.
    compiler = PolicyCompiler(has_params, None)
    seen: set[str] = set()
    for at, one in enumerate(conditions):
        here, text, name = f"{path}[{at}]", one.get("expression", "").strip(), one.get("name", "")
        if not text:
            yield required(f"{here}.expression")
        else:
            found = compiler.compile(text, (BOOL,))
            yield from _compile_causes(found, f"{here}.expression")
        if not name:
            yield required(f"{here}.name")
            continue
        for problem in qualified_name_problems(name):
            yield invalid(f"{here}.name", name, problem)
        if name in seen:
            yield duplicate(f"{here}.name", name)
        seen.add(name)


def _compile_causes(found: CompiledExpression, path: str, formatted: str = "") -> Iterator[Cause]:
    if found.error.startswith("program instantiation failed"):
        yield Cause(path, "InternalError", f"Internal error: {found.error}")
    elif found.error:
        yield invalid(path, formatted or found.text, found.error)


def _variable_causes(spec: Tree, compiler: PolicyCompiler) -> Iterator[Cause]:
    for at, one in enumerate(spec.get("variables") or ()):
        path, name, text = f"spec.variables[{at}]", one.get("name", ""), one.get("expression", "")
        if not name.strip():
            yield required(f"{path}.name", "name is not specified")
        elif not _is_identifier(name):
            yield invalid(f"{path}.name", name, "must be a valid CEL identifier")
        if not text.strip():
            yield required(f"{path}.expression", "expression is not specified")
            continue
        yield from _compile_causes(compiler.add_variable(name, text), f"{path}.expression")


def _is_identifier(name: str) -> bool:
    reserved = name in KEYWORDS or name in RESERVED
    return _IDENTIFIER.fullmatch(name) is not None and not reserved


def _validation_causes(one: Tree, path: str, compiler: PolicyCompiler) -> Iterator[Cause]:
    text, message = one.get("expression", ""), one.get("message", "")
    given = one.get("messageExpression", "")
    if not text.strip():
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from _compile_causes(compiler.compile(text, (BOOL,)), f"{path}.expression")
    if given and not given.strip():
        yield invalid(f"{path}.messageExpression", given, "must be non-empty if specified")
    elif given:
        found = compiler.compile(given, (STRING,), has_authorizer=False)
        yield from _compile_causes(found, f"{path}.messageExpression")
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _LINE_BREAK.search(message.strip()):
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    yield from field_checks.one_of(one.get("reason"), _REASONS, f"{path}.reason")


def _annotation_causes(notes: list[Tree], policy: str, compiler: PolicyCompiler) -> Iterator[Cause]:
    path = "spec.auditAnnotations"
    if len(notes) > _ANNOTATIONS_MAX:
        yield invalid(path, notes, f"must not have more than {_ANNOTATIONS_MAX} auditAnnotations")
    seen: set[str] = set()
    for at, one in enumerate(notes):
        here, key = f"{path}[{at}]", one.get("key", "")
        if policy:
            for problem in qualified_name_problems(f"{policy}/{key}"):
                yield invalid(f"{here}.key", f"{policy}/{key}", problem)
        else:
            yield invalid(f"{here}.key", key, "requires metadata.name be non-empty")
        text = one.get("valueExpression", "").strip()
        value = f"{here}.valueExpression"
        if not text:
            yield required(value, "valueExpression is not specified")
        elif len(text.encode()) > _ANNOTATION_BYTES_MAX:
            yield required(value, f"must not exceed {_ANNOTATION_BYTES_MAX} bytes in length")
        else:
            found = compiler.compile(text, (STRING, NULL))
            yield from _compile_causes(found, value, one["valueExpression"])
        if key in seen:
            yield duplicate(f"{here}.key", key)
        seen.add(key)


_PATCH_RESULTS: dict[str, CelType] = {
    "JSONPatch": CelType("list", (CelType(JSON_PATCH),)),
    "ApplyConfiguration": CelType(OBJECT),
}


def _mutation_causes(one: Tree, path: str, compiler: PolicyCompiler) -> Iterator[Cause]:
    kind = one.get("patchType", "")
    if kind not in _PATCH_TYPES:
        yield from field_checks.supported_value(kind, _PATCH_TYPES, f"{path}.patchType")
        return
    fields = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}
    own = fields.pop(kind)
    (other,) = fields.values()
    given = one.get(own)
    if given is None:
        yield required(f"{path}.{own}", f"must be specified when patchType is {kind}")
    elif not given.get("expression", "").strip():
        yield required(f"{path}.{own}.expression")
    else:
        text = given["expression"].strip()
        found = compiler.compile(text, (_PATCH_RESULTS[kind],), patches=True)
        yield from _compile_causes(found, f"{path}.{own}.expression")
    if one.get(other) is not None:
        text = f"must not be specified when patchType is {kind}"
        yield invalid(f"{path}.{other}", f"{{{other}}}", text)


def _binding_causes(spec: Tree) -> Iterator[Cause]:
    name = spec.get("policyName", "")
    if not name:
        yield required("spec.policyName")
    for problem in subdomain_problems(name) if name else ():
        yield invalid("spec.policyName", name, problem)
    if spec.get("paramRef") is not None:
        yield from _param_ref_causes(spec["paramRef"], "spec.paramRef")
    if spec.get("matchResources") is not None:
        yield from _match_causes(spec["matchResources"], "spec.matchResources")


def _param_ref_causes(given: Tree, path: str) -> Iterator[Cause]:
    name, selector = given.get("name", ""), given.get("selector")
    exclusive = "name and selector are mutually exclusive"
    if name:
        yield from field_checks.path_segment(name, f"{path}.name")
        if selector is not None:
            yield forbidden_field(f"{path}.name", exclusive)
    if selector is not None:
        yield from field_checks.selector(selector, f"{path}.selector")
        if name:
            yield forbidden_field(f"{path}.selector", exclusive)
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    action = given.get("parameterNotFoundAction", "")
    actions = ("Deny", "Allow")
    yield from field_checks.supported_value(action, actions, f"{path}.parameterNotFoundAction")


def validating_binding_causes(obj: Tree) -> Iterator[Cause]:
    """Causes of a ValidatingAdmissionPolicyBinding."""
    yield from _binding_causes(obj["spec"])
    yield from _action_causes(obj["spec"].get("validationActions") or [], "spec.validationActions")


def _action_causes(actions: Sequence[str], path: str) -> Iterable[Cause]:
    seen: set[str] = set()
    for at, one in enumerate(actions):
        if one not in _ACTIONS:
            yield not_supported(f"{path}[{at}]", one, _ACTIONS)
        if one in seen:
            yield duplicate(f"{path}[{at}]", one)
        seen.add(one)
    if {"Deny", "Warn"} <= seen:
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure information"
            " in the API response and headers serves no purpose)"
        )
        yield invalid(path, list(actions), text)
    if not seen:
        yield required(path, "at least one validation action is required")


def mutating_binding_causes(obj: Tree) -> Iterator[Cause]:
    """Causes of a MutatingAdmissionPolicyBinding."""
    spec = obj["spec"]
    yield from _binding_causes(spec)
    if spec.get("matchResources") is not None:
        yield from _mutated_operation_causes(spec["matchResources"], "spec.matchResources")
