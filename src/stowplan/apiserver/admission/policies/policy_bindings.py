"""Policies in force: with their bindings, compiled expressions and parameters.

Source: apiserver v1.36, pkg/admission/plugin/policy/generic: policy_source.go,
policy_dispatcher.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from stowplan.apis.machinery.errors import aggregated
from stowplan.apis.machinery.resource import ApiCall, ObjectClient, Resource
from stowplan.apis.validation import field_checks
from stowplan.apiserver.admission.admission_plugin import stored_objects
from stowplan.apiserver.admission.policies.policy_environments import CompiledExpression
from stowplan.apiserver.admission.policies.policy_variables import (
    CONDITIONS_COST_MAX,
    OutOfBudget,
    evaluation,
)
from stowplan.apiserver.admission.policies.request_matching import (
    AdmissionAttributes,
    matched_resource,
)
from stowplan.objects.encoding.tree import Tree

CompiledPolicy = TypeVar("CompiledPolicy")


class PolicyConfigurationError(Exception):
    """A policy or binding that cannot be evaluated. names_binding: it is the binding's fault."""

    def __init__(self, text: str, names_binding: bool) -> None:
        what = "binding" if names_binding else "policy"
        super().__init__(f"failed to configure {what}: {text}")
        self.names_binding = names_binding


@dataclass(frozen=True)
class PolicyInForce(Generic[CompiledPolicy]):
    """A policy with at least one binding."""

    policy: Tree
    bindings: tuple[Tree, ...]
    compiled: CompiledPolicy

    @property
    def name(self) -> str:
        """Name of the policy."""
        return str(self.policy["metadata"]["name"])

    @property
    def ignores_errors(self) -> bool:
        """True if its failure policy is Ignore."""
        return bool(self.policy["spec"].get("failurePolicy") == "Ignore")


class PoliciesInForce(Generic[CompiledPolicy]):
    """The policies of one kind that have bindings, read again after a write of them."""

    def __init__(
        self, policies: str, bindings: str, compiled: Callable[[Tree], CompiledPolicy]
    ) -> None:
        """policies, bindings: resource paths. compiled: the expressions of a policy."""
        self._paths = (policies, bindings)
        self._compile = compiled
        self._found: list[PolicyInForce[CompiledPolicy]] = []
        self._known: dict[str, tuple[Tree, CompiledPolicy]] = {}
        self._objects: ObjectClient | None = None
        self._n_writes = (-1, -1)

    def all(self, call: ApiCall) -> list[PolicyInForce[CompiledPolicy]]:
        """The policies, by name. A lookup without a write since the last costs two calls."""
        first, second = self._paths
        n_writes = (call.objects.n_writes(first), call.objects.n_writes(second))
        if self._objects is not call.objects or self._n_writes != n_writes:
            self._found = list(self._read(call))
            self._objects, self._n_writes = call.objects, n_writes
        return self._found

    def _read(self, call: ApiCall) -> Iterator[PolicyInForce[CompiledPolicy]]:
        bindings: dict[str, list[Tree]] = {}
        for one in stored_objects(call, self._paths[1]):
            bindings.setdefault(one["spec"].get("policyName", ""), []).append(one)
        known: dict[str, tuple[Tree, CompiledPolicy]] = {}
        for policy in stored_objects(call, self._paths[0]):
            own = bindings.get(policy["metadata"]["name"])
            if not own:
                continue
            uid = policy["metadata"]["uid"]
            before = self._known.get(uid)
            if before is None or before[0] != policy["spec"]:
                before = (policy["spec"], self._compile(policy["spec"]))
            known[uid] = before
            yield PolicyInForce(policy, tuple(own), before[1])
        self._known = known


def matched_policy(request: AdmissionAttributes, policy: Tree) -> Resource | None:
    """The resource by which a request matches a policy, None for no match.

    Raises PolicyConfigurationError for a kind of parameters that is not served.
    """
    spec = policy["spec"]
    matched = matched_resource(request, spec["matchConstraints"])
    if matched is not None and spec.get("paramKind") is not None:
        param_resource(request.call, spec["paramKind"])
    return matched


def matches_binding(request: AdmissionAttributes, binding: Tree) -> bool:
    """True if a binding applies to a request."""
    given = binding["spec"].get("matchResources")
    return given is None or matched_resource(request, given) is not None


def param_resource(call: ApiCall, kind: Tree) -> Resource:
    """The resource of the parameters of a policy. Raises PolicyConfigurationError."""
    group, _, version = kind.get("apiVersion", "").rpartition("/")
    found = call.objects.registry.by_kind(group, version, kind.get("kind", ""))
    if found is None:
        formatted = f"{group}/{version}, Kind={kind.get('kind', '')}"
        text = f"failed to find resource referenced by paramKind: '{formatted}'"
        raise PolicyConfigurationError(text, names_binding=False)
    return found


def params_of(request: AdmissionAttributes, policy: Tree, binding: Tree) -> list[Tree | None]:
    """The parameters of a binding; [None] for a policy or binding without.

    Raises PolicyConfigurationError.
    """
    kind, given = policy["spec"].get("paramKind"), binding["spec"].get("paramRef")
    if kind is None or given is None:
        return [None]
    resource = param_resource(request.call, kind)
    namespace = given.get("namespace", "")
    if not resource.namespaced and namespace:
        text = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
        raise PolicyConfigurationError(text, names_binding=True)
    if resource.namespaced and not namespace:
        namespace = request.namespace
        if not namespace:
            text = (
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped"
                " resources"
            )
            raise PolicyConfigurationError(text, names_binding=True)
    found = list(_selected_params(request.call, resource, namespace, given))
    if not found and given.get("parameterNotFoundAction") == "Deny":
        text = "no params found for policy binding with `Deny` parameterNotFoundAction"
        raise PolicyConfigurationError(text, names_binding=True)
    return [{**one, "kind": resource.kind, "apiVersion": resource.api_version} for one in found]


def _selected_params(
    call: ApiCall, resource: Resource, namespace: str, given: Tree
) -> Iterator[Tree]:
    if given.get("name"):
        found = call.objects.get(resource, namespace, given["name"])
        if found is not None:
            yield found
        return
    for one in call.objects.list(resource, namespace):
        if field_checks.matches(given["selector"], one["metadata"].get("labels") or {}):
            yield one


@dataclass(frozen=True)
class ConditionsResult:
    """Result of match conditions. error: "" if they could all be evaluated, or one is false."""

    holds: bool
    error: str = ""


def check_conditions(
    request: AdmissionAttributes,
    matched: Resource,
    params: Tree | None,
    conditions: list[CompiledExpression],
    variables: dict[str, CompiledExpression],
) -> ConditionsResult:
    """Evaluate the match conditions of a policy."""
    if not conditions:
        return ConditionsResult(True)
    run = evaluation(request, matched, params, variables, CONDITIONS_COST_MAX, with_namespace=False)
    errors: list[str] = []
    try:
        for one in conditions:
            found = run.outcome(one)
            if found.error:
                errors.append(found.error)
            elif found.value is False:
                return ConditionsResult(False)
    except OutOfBudget as error:
        return ConditionsResult(False, str(error))
    return ConditionsResult(False, aggregated(errors)) if errors else ConditionsResult(True)
