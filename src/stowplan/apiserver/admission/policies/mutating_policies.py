"""MutatingAdmissionPolicy: objects that are written are changed by expressions.

Source: apiserver v1.36, pkg/admission/plugin/policy/mutating: dispatcher.go, compilation.go;
pkg/admission/plugin/policy/generic/policy_dispatcher.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

from stowplan.apis.machinery.errors import ApiError, BodyDecodeError, internal_error
from stowplan.apis.machinery.resource import ApiCall, Resource, ResourceSchema
from stowplan.apiserver.admission.admission_plugin import admission_forbidden
from stowplan.apiserver.admission.policies.patch_results import (
    PatchError,
    check_type_names,
    json_patch_of,
    merged_by_apply,
    patched_by_json,
    plain_value,
)
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
    OBJECT,
    CompiledExpression,
    policy_compiler,
)
from stowplan.apiserver.admission.policies.policy_kinds import MUTATING_BINDINGS, MUTATING_POLICIES
from stowplan.apiserver.admission.policies.policy_variables import (
    OutOfBudget,
    evaluation,
    versioned,
)
from stowplan.apiserver.admission.policies.reinvocation import Reinvocation
from stowplan.apiserver.admission.policies.request_matching import AdmissionAttributes, is_exempt
from stowplan.cel.cel_types import BOOL
from stowplan.objects.encoding.tree import Tree


@dataclass(frozen=True)
class CompiledMutations:
    """The expressions of a policy. mutations: with their type of patch."""

    conditions: list[CompiledExpression]
    variables: dict[str, CompiledExpression]
    mutations: list[tuple[str, CompiledExpression]]


def compiled_mutations(spec: Tree) -> CompiledMutations:
    """Compile the expressions of a policy."""
    compiler = policy_compiler(spec)
    mutations = []
    for one in spec.get("mutations") or ():
        given = one.get("jsonPatch") or one.get("applyConfiguration") or {}
        compiled = compiler.compile(given.get("expression", ""), (), patches=True)
        mutations.append((one["patchType"], compiled))
    return CompiledMutations(
        [compiler.compile(one["expression"], (BOOL,)) for one in spec.get("matchConditions") or ()],
        compiler.variables or {},
        mutations,
    )


@dataclass(frozen=True)
class _PolicyInvocation:
    """A policy for one binding and parameter. matched: the version that it sees."""

    policy: PolicyInForce[CompiledMutations]
    binding: str
    matched: Resource
    params: Tree | None

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is known by when it is to run again."""
        return self.policy.name, self.binding, str((self.params or {}).get("metadata", {}))

    @property
    def is_repeatable(self) -> bool:
        """True if it runs again after others have changed the object."""
        return bool(self.policy.policy["spec"].get("reinvocationPolicy") == "IfNeeded")


@dataclass(frozen=True)
class PolicyFault:
    """A policy that failed. binding: its name, "" where the policy itself is at fault."""

    policy: PolicyInForce[CompiledMutations]
    binding: str
    message: str
    reason: str = ""

    def text(self) -> str:
        """The text of the error."""
        if self.binding:
            start = f"policy '{self.policy.name}' with binding '{self.binding}'"
        else:
            start = f'policy "{self.policy.name}"'
        return f"{start} denied request: {self.message}"


class MutatingAdmissionPolicies:
    """Changes objects by the policies in force. in_force: these, for a write."""

    def __init__(self) -> None:
        found = PoliciesInForce(MUTATING_POLICIES, MUTATING_BINDINGS, compiled_mutations)
        self.in_force = found.all

    def mutate(
        self, call: ApiCall, obj: Tree | None, old: Tree | None, again: Reinvocation
    ) -> None:
        """Change a new or updated object. Raises ApiError 403 for a policy that fails."""
        policies = self.in_force(call)
        if not policies or is_exempt(call) or obj is None:
            return
        again.begin(obj)
        run = _MutationRun(AdmissionAttributes(call, obj, old), again)
        run.invoke(list(run.invocations(policies)))
        again.end(obj)
        faults = [one for one in run.faults if not one.policy.ignores_errors]
        if faults:
            raise _refusal(call, obj, faults)


def _refusal(call: ApiCall, obj: Tree, faults: list[PolicyFault]) -> ApiError:
    error = admission_forbidden(call, obj, "")
    causes = [{"message": one.text()} for one in faults]
    details = {**(error.details or {}), "causes": causes}
    return ApiError(403, faults[0].reason or "Forbidden", faults[0].text(), details)


class _MutationRun:
    """The policies of one request."""

    def __init__(self, request: AdmissionAttributes, again: Reinvocation) -> None:
        self._request = request
        self._again = again
        self.faults: list[PolicyFault] = []

    def invocations(
        self, policies: list[PolicyInForce[CompiledMutations]]
    ) -> Iterator[_PolicyInvocation]:
        """What is to be invoked, in order."""
        for policy in policies:
            try:
                matched = matched_policy(self._request, policy.policy)
            except PolicyConfigurationError as error:
                self.faults.append(PolicyFault(policy, "", str(error)))
                continue
            if matched is None:
                continue
            for binding in policy.bindings:
                if not matches_binding(self._request, binding):
                    continue
                name = binding["metadata"]["name"]
                try:
                    params = params_of(self._request, policy.policy, binding)
                except PolicyConfigurationError as error:
                    self.faults.append(PolicyFault(policy, name, str(error)))
                    continue
                yield from (_PolicyInvocation(policy, name, matched, one) for one in params)

    def invoke(self, invocations: list[_PolicyInvocation]) -> None:
        """Apply the patches of policies, each to the result of the one before."""
        is_patched = False
        for one in invocations:
            if not self._again.is_due(one.key):
                continue
            before = copy.deepcopy(self._request.obj)
            self._invoke_one(one)
            if self._request.obj != before:
                is_patched = True
                self._again.changed()
            if one.is_repeatable:
                self._again.invoked(one.key)
        if is_patched:
            # Other than webhooks, the one that changed the object is due itself.
            self._again.changed()

    def _invoke_one(self, one: _PolicyInvocation) -> None:
        compiled = one.policy.compiled
        held = check_conditions(
            self._request, one.matched, one.params, compiled.conditions, compiled.variables
        )
        if held.error:
            self.faults.append(PolicyFault(one.policy, one.binding, held.error, "Invalid"))
        if not held.holds:
            return
        for kind, expression in compiled.mutations:
            try:
                self._mutate(one, kind, expression)
            except (PatchError, OutOfBudget) as error:
                self.faults.append(PolicyFault(one.policy, one.binding, str(error), "Invalid"))

    def _mutate(self, one: _PolicyInvocation, kind: str, expression: CompiledExpression) -> None:
        request, obj = self._request, self._request.obj
        assert obj is not None
        if expression.program is None:
            raise PatchError(expression.error)
        run = evaluation(request, one.matched, one.params, one.policy.compiled.variables)
        found = run.outcome(expression)
        if found.error:
            raise PatchError(found.error)
        before = versioned(request, obj, one.matched)
        assert before is not None
        schema = _schema(request, one.matched)
        if kind == "JSONPatch":
            after = patched_by_json(before, json_patch_of(found.value))
        else:
            check_type_names(found.value, OBJECT)
            after = merged_by_apply(before, _applied(found.value, before, schema), schema)
        self._replace(obj, _decoded(after, schema), one.matched)

    def _replace(self, obj: Tree, after: Tree, matched: Resource) -> None:
        call = self._request.call
        sub = call.resource.subresources.get(call.subresource)
        if sub is not None and sub.view is not None:
            after = sub.view.write(obj, after, call)
        elif sub is None and matched.alias is not None:
            after = matched.alias.to_stored(after)
        head: Tree = {key: obj[key] for key in ("kind", "apiVersion") if key in obj}
        obj.clear()
        obj.update({**after, **head})


def _schema(request: AdmissionAttributes, matched: Resource) -> ResourceSchema:
    sub = request.call.resource.subresources.get(request.call.subresource)
    return matched.schema if sub is None or sub.schema is None else sub.schema


def _applied(value: object, before: Tree, schema: ResourceSchema) -> Tree:
    """An apply configuration as a tree with known fields only. Raises PatchError."""
    head = {"kind": before.get("kind"), "apiVersion": before.get("apiVersion")}
    applied: Tree = {**plain_value(value), **head}
    start = "error applying patch: failed to convert patch object to typed object"
    try:
        _, texts = schema.decode(applied, (), "Strict")
    except BodyDecodeError as error:
        raise PatchError(f"{start}: {error}") from None
    unknown = [text.removeprefix('unknown field "').removesuffix('"') for text in texts]
    problems = [f".{path}: field not declared in schema" for path in unknown]
    if len(problems) == 1:
        raise PatchError(f"{start}: {problems[0]}")
    if problems:
        listed = "".join(f"\n  {one}" for one in problems)
        raise PatchError(f"{start}: errors:{listed}")
    return applied


def _decoded(after: Tree, schema: ResourceSchema) -> Tree:
    """A patched object in canonical form, with defaults. Raises ApiError 500."""
    head: Tree = {key: after[key] for key in ("kind", "apiVersion") if key in after}
    try:
        made, texts = schema.decode(after, (), "Strict")
    except BodyDecodeError as error:
        raise internal_error(str(error)) from None
    if texts:
        raise internal_error(f"strict decoding error: {', '.join(texts)}")
    made.update(head)
    made.setdefault("metadata", {})
    schema.default(made)
    return made
