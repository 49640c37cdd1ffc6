"""The variables of expressions: object, request, namespaceObject, params, authorizer.

Source: apiserver v1.36, pkg/admission/plugin/cel/activation.go, condition.go, composition.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stowplan.apis.machinery.resource import Resource
from stowplan.apiserver.admission.admission_plugin import stored_object
from stowplan.apiserver.admission.policies.policy_environments import CompiledExpression
from stowplan.apiserver.admission.policies.request_matching import AdmissionAttributes
from stowplan.apiserver.crd.rules.typed_values import json_value
from stowplan.apiserver.expressions.authorizer_library import CelAuthorizer, ResourceCheck
from stowplan.cel.program import EvaluationOutcome
from stowplan.cel.values import EvaluationError, MapValue
from stowplan.objects.encoding.tree import Tree

CALL_COST_MAX = 1_000_000
REQUEST_COST_MAX = 10_000_000
CONDITIONS_COST_MAX = 2_500_000
_OUT_OF_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
_NAMESPACE_FIELDS = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation",
    "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "labels",
    "annotations", "finalizers",
)  # fmt: skip
_OPTIONS_KINDS = {
    "create": "CreateOptions", "update": "UpdateOptions", "patch": "UpdateOptions",
    "delete": "DeleteOptions", "deletecollection": "DeleteOptions",
}  # fmt: skip


class OutOfBudget(Exception):
    """The evaluations of a request cost too much; the message is the original's."""

    def __init__(self) -> None:
        super().__init__(_OUT_OF_BUDGET)


@dataclass
class Budget:
    """Cost that is left to a request."""

    left: int

    def spend(self, cost: int) -> None:
        """Count a cost. Raises OutOfBudget."""
        self.left -= cost
        if self.left < 0:
            raise OutOfBudget


class _LazyVariables(MapValue):
    """The variables of a policy; each is evaluated when it is first read."""

    __slots__ = ("_budget", "_compiled", "_known", "_own")

    def __init__(
        self, compiled: Mapping[str, CompiledExpression], own: dict[str, Any], budget: Budget
    ) -> None:
        super().__init__()
        self._compiled, self._own, self._budget = compiled, own, budget
        self._known: dict[str, EvaluationOutcome] = {}

    def find(self, key: Any) -> tuple[bool, Any]:
        """(True, value) of a variable. Raises EvaluationError, OutOfBudget."""
        compiled = self._compiled.get(key)
        if compiled is None:
            return False, None
        found = self._known.get(key)
        if found is None:
            if compiled.program is None:
                raise EvaluationError(
                    f'composited variable "{key}" fails to compile: {compiled.error}'
                )
            found = self._known[key] = compiled.program.outcome(self._own, CALL_COST_MAX)
            self._budget.spend(found.cost)
        if found.error:
            text = f'composited variable "{key}" fails to evaluate: {found.error}'
            raise EvaluationError(text)
        return True, found.value

    def contains(self, key: Any) -> bool:
        """True for a variable of the policy."""
        return key in self._compiled


@dataclass
class Evaluation:
    """Evaluates expressions of one policy for one request."""

    values: dict[str, Any]
    budget: Budget

    def outcome(self, compiled: CompiledExpression) -> EvaluationOutcome:
        """Value or error of an expression, the error with its text. Raises OutOfBudget."""
        if compiled.program is None:
            return EvaluationOutcome(None, f"compilation error: {compiled.error}", 0)
        found = compiled.program.outcome(self.values, CALL_COST_MAX)
        self.budget.spend(found.cost)
        if found.error:
            text = f"expression '{compiled.text}' resulted in error: {found.error}"
            return EvaluationOutcome(None, text, found.cost)
        return found


def evaluation(
    request: AdmissionAttributes,
    matched: Resource,
    params: Tree | None,
    variables: Mapping[str, CompiledExpression],
    cost_max: int = REQUEST_COST_MAX,
    *,
    with_namespace: bool = True,
) -> Evaluation:
    """The variables for one parameter. matched: the version that the policy sees."""
    call = request.call
    authorizer = CelAuthorizer(call.access, call.user)
    check = ResourceCheck(
        authorizer, call.resource.group, call.resource.plural, call.subresource,
        request.namespace, request.name,
    )  # fmt: skip
    values: dict[str, Any] = {
        "object": json_value(versioned(request, request.obj, matched)),
        "oldObject": json_value(versioned(request, request.old, matched)),
        "request": json_value(request_tree(request, matched)),
        "namespaceObject": json_value(_namespace_tree(request) if with_namespace else None),
        "params": json_value(params),
        "authorizer": authorizer,
        "authorizer.requestResource": check,
    }
    budget = Budget(cost_max)
    values["variables"] = _LazyVariables(variables, values, budget)
    return Evaluation(values, budget)


def versioned(request: AdmissionAttributes, obj: Tree | None, matched: Resource) -> Tree | None:
    """An object as a version of its kind has it."""
    if obj is None:
        return None
    sub = request.call.resource.subresources.get(request.call.subresource)
    if sub is not None and sub.act is not None:
        return obj
    if sub is not None and sub.view is not None:
        return sub.view.read(obj, request.call)
    if matched.alias is not None:
        return matched.alias.from_stored(obj)
    return {**obj, "kind": matched.kind, "apiVersion": matched.api_version}


def _kind_tree(request: AdmissionAttributes, resource: Resource) -> Tree:
    sub = request.call.resource.subresources.get(request.call.subresource)
    if sub is not None and sub.kind:
        return {"group": sub.group, "version": sub.version, "kind": sub.kind}
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def request_tree(request: AdmissionAttributes, matched: Resource) -> Tree:
    """The request, as expressions and webhooks see it, without objects."""
    call = request.call
    made: Tree = {
        "uid": "",
        "kind": _kind_tree(request, matched),
        "resource": _resource_tree(matched),
        "requestKind": _kind_tree(request, call.resource),
        "requestResource": _resource_tree(call.resource),
        "operation": request.operation,
        "userInfo": _user_tree(request),
        "dryRun": call.dry_run,
        "options": {
            "kind": _OPTIONS_KINDS[call.verb], "apiVersion": "meta.k8s.io/v1", **call.options,
        },
    }  # fmt: skip
    optional = {
        "subResource": call.subresource, "requestSubResource": call.subresource,
        "name": request.name, "namespace": request.namespace,
    }  # fmt: skip
    return made | {key: value for key, value in optional.items() if value}


def _resource_tree(resource: Resource) -> Tree:
    return {
        "group": resource.group, "version": resource.version, "resource": resource.plural,
    }  # fmt: skip


def _user_tree(request: AdmissionAttributes) -> Tree:
    user = request.call.user
    extra = {key: list(values) for key, values in user.extra.items()}
    held: Tree = {
        "username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra,
    }  # fmt: skip
    return {key: value for key, value in held.items() if value}


def _namespace_tree(request: AdmissionAttributes) -> Tree | None:
    """The namespace of a request; None for a cluster-wide object and for a namespace itself."""
    if not request.namespace or request.is_namespace:
        return None
    found = stored_object(request.call, "namespaces", "", request.namespace)
    if found is None:
        return None
    meta = {key: found["metadata"][key] for key in _NAMESPACE_FIELDS if key in found["metadata"]}
    return {"metadata": meta, "spec": found.get("spec", {}), "status": found.get("status", {})}
