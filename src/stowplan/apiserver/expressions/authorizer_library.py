"""The authorizer in CEL: `authorizer.group('').resource('pods').check('get').allowed()`.

Source: apiserver v1.36, pkg/cel/library/authz.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from stowplan.apis.machinery.access import AccessControl, Attributes
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import User
from stowplan.apis.machinery.names import label_problems, subdomain_problems
from stowplan.cel.overloads import Library
from stowplan.cel.values import LIBRARY_KINDS, EvaluationError, ValueKind, size_of

_PACKAGE = "kubernetes.authorization"
AUTHORIZER, RESOURCE_CHECK = f"{_PACKAGE}.Authorizer", f"{_PACKAGE}.ResourceCheck"
_PATH_CHECK, _GROUP_CHECK, _DECISION = (
    f"{_PACKAGE}.{name}" for name in ("PathCheck", "GroupCheck", "Decision")
)
_CHECK_COST = 350_000


@dataclass(frozen=True)
class CelAuthorizer:
    """What a user may do."""

    access: AccessControl
    user: User


@dataclass(frozen=True)
class PathCheck:
    """Access to a path."""

    authorizer: CelAuthorizer
    path: str


@dataclass(frozen=True)
class GroupCheck:
    """Access to a group."""

    authorizer: CelAuthorizer
    group: str


@dataclass(frozen=True)
class ResourceCheck:
    """Access to a resource."""

    authorizer: CelAuthorizer
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True)
class AccessDecision:
    """The answer."""

    is_allowed: bool
    reason: str = ""


for _kind, _name in (
    (CelAuthorizer, AUTHORIZER), (PathCheck, _PATH_CHECK), (GroupCheck, _GROUP_CHECK),
    (ResourceCheck, RESOURCE_CHECK), (AccessDecision, _DECISION),
):  # fmt: skip
    LIBRARY_KINDS[_kind] = ValueKind(_name, lambda one, two: bool(one == two))


def _decide(authorizer: CelAuthorizer, wanted: Attributes) -> AccessDecision:
    rbac = getattr(authorizer.access, "rbac", None)
    if rbac is not None:
        found = rbac.authorize(authorizer.user, wanted)
        return AccessDecision(found.allowed, found.reason)
    try:
        authorizer.access.authorize(authorizer.user, wanted)
    except ApiError:
        return AccessDecision(False)
    return AccessDecision(True)


def _check_path(held: PathCheck, verb: str) -> AccessDecision:
    return _decide(held.authorizer, Attributes(verb, path=held.path))


def _check_resource(held: ResourceCheck, verb: str) -> AccessDecision:
    wanted = Attributes(
        verb, held.group, "*", held.resource, held.subresource, held.namespace, held.name
    )
    return _decide(held.authorizer, wanted)


def _path(held: CelAuthorizer, path: str) -> PathCheck:
    if not path.strip():
        raise EvaluationError("path must not be empty")
    return PathCheck(held, path)


def _resource(held: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(held.authorizer, held.group, resource)


def _service_account(held: CelAuthorizer, namespace: str, name: str) -> CelAuthorizer:
    if subdomain_problems(name):
        raise EvaluationError("Invalid service account name")
    if label_problems(namespace):
        raise EvaluationError("Invalid service account namespace")
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    user = User(f"system:serviceaccount:{namespace}:{name}", groups=groups)
    return CelAuthorizer(held.access, user)


_SETTERS: dict[str, Callable[[ResourceCheck, str], ResourceCheck]] = {
    "subresource": lambda held, value: replace(held, subresource=value),
    "namespace": lambda held, value: replace(held, namespace=value),
    "name": lambda held, value: replace(held, name=value),
}


def _check_cost(values: tuple[Any, ...], result: Any) -> int:
    return _CHECK_COST


def _selector_cost(values: tuple[Any, ...], result: Any) -> int:
    length = size_of(values[1])
    return 10 + math.ceil(length * 0.1) + math.ceil(math.ceil(length * 0.5) * 50)


def authorizer_library() -> Library:
    """Functions of the variable `authorizer`.

    Differs: field and label selectors narrow no check, as roles know none.
    """
    library = Library()
    add = library.add
    add("authorizer_path", f"{AUTHORIZER}->path(string) {_PATH_CHECK}", _path)
    add("authorizer_group", f"{AUTHORIZER}->group(string) {_GROUP_CHECK}", GroupCheck)
    add("authorizer_serviceaccount", f"{AUTHORIZER}->serviceAccount(string, string) {AUTHORIZER}",
        _service_account)  # fmt: skip
    add("groupcheck_resource", f"{_GROUP_CHECK}->resource(string) {RESOURCE_CHECK}", _resource)
    for field, setter in _SETTERS.items():
        signature = f"{RESOURCE_CHECK}->{field}(string) {RESOURCE_CHECK}"
        add(f"resourcecheck_{field}", signature, setter)
    for field in ("fieldSelector", "labelSelector"):
        signature = f"{RESOURCE_CHECK}->{field}(string) {RESOURCE_CHECK}"
        add(f"authorizer_{field.lower()}", signature, lambda held, text: held, _selector_cost)
    add("pathcheck_check", f"{_PATH_CHECK}->check(string) {_DECISION}", _check_path, _check_cost)
    add("resourcecheck_check", f"{RESOURCE_CHECK}->check(string) {_DECISION}", _check_resource,
        _check_cost)  # fmt: skip
    add("decision_errored", f"{_DECISION}->errored() bool", lambda held: False)
    add("decision_error", f"{_DECISION}->error() string", lambda held: "")
    add("decision_allowed", f"{_DECISION}->allowed() bool", lambda held: held.is_allowed)
    add("decision_reason", f"{_DECISION}->reason() string", lambda held: held.reason)
    return library
