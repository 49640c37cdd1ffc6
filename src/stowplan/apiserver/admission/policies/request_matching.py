"""Which requests a policy matches: rules, selectors, and other versions of a resource.

Source: apiserver v1.36, pkg/admission/plugin/policy/matching/matching.go,
pkg/admission/plugin/webhook/predicates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stowplan.apis.machinery.errors import not_found
from stowplan.apis.machinery.resource import ApiCall, Resource
from stowplan.apis.validation import field_checks
from stowplan.apiserver.admission.admission_plugin import stored_object
from stowplan.objects.encoding.tree import Tree

OPERATIONS = {
    "create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE",
    "deletecollection": "DELETE",
}  # fmt: skip
_EXEMPT_GROUP = "admissionregistration.k8s.io"


@dataclass(frozen=True)
class AdmissionAttributes:
    """A request as admission sees it. namespace: of a namespace itself, its name. obj, old: as
    they are stored, None where there is none."""

    call: ApiCall
    obj: Tree | None
    old: Tree | None

    @property
    def operation(self) -> str:
        """CREATE, UPDATE or DELETE."""
        if self.old is None and self.obj is not None and not self.call.subresource:
            return "CREATE"
        return OPERATIONS[self.call.verb]

    @property
    def is_namespace(self) -> bool:
        """True for a request about a namespace itself."""
        return self.call.resource.path == "namespaces"

    @property
    def name(self) -> str:
        """Name of the object; "" while it has none, and for one of a collection."""
        if self.call.verb == "deletecollection":
            return ""
        if self.call.name:
            return self.call.name
        return str(((self.obj or self.old or {}).get("metadata") or {}).get("name", ""))

    @property
    def namespace(self) -> str:
        """Namespace of the request."""
        if self.is_namespace:
            return self.name
        return self.call.namespace if self.call.resource.namespaced else ""


def is_exempt(call: ApiCall) -> bool:
    """True for the configuration of admission itself, to which no policy applies."""
    return call.resource.group == _EXEMPT_GROUP


def matched_resource(request: AdmissionAttributes, given: Tree) -> Resource | None:
    """The resource by which a request matches: its own, or another version of it; None: no match.

    Raises ApiError 404 if the namespace does not exist.
    """
    if not _matches_object(request, given):
        return None
    in_namespace = _matches_namespace(request, given)
    if in_namespace is False:
        return None
    is_exact = given.get("matchPolicy") == "Exact"
    if _resource_of(request, given.get("excludeResourceRules") or (), is_exact) is not None:
        return None
    rules = given.get("resourceRules") or ()
    found = request.call.resource if not rules else _resource_of(request, rules, is_exact)
    if found is not None and in_namespace is None:
        raise not_found("", "namespaces", request.namespace)
    return found


def _matches_namespace(request: AdmissionAttributes, given: Tree) -> bool | None:
    """None: the namespace does not exist."""
    selector = given.get("namespaceSelector")
    if field_checks.is_empty_selector(selector):
        return True
    if not request.namespace and not request.is_namespace:
        return True
    labels = namespace_labels(request)
    return None if labels is None else field_checks.matches(selector, labels)


def namespace_labels(request: AdmissionAttributes) -> Tree | None:
    """Labels of the namespace of a request; None if it does not exist."""
    if request.is_namespace and not request.call.subresource and request.obj is not None:
        held: Tree | None = request.obj
    else:
        held = stored_object(request.call, "namespaces", "", request.namespace)
    return None if held is None else (held["metadata"].get("labels") or {})


def _matches_object(request: AdmissionAttributes, given: Tree) -> bool:
    selector = given.get("objectSelector")
    if field_checks.is_empty_selector(selector):
        return True
    labels = [
        (one.get("metadata") or {}).get("labels") or {}
        for one in (request.obj, request.old)
        if one is not None
    ]
    return any(field_checks.matches(selector, held) for held in labels)


def _resource_of(
    request: AdmissionAttributes, rules: Iterable[Tree], is_exact: bool
) -> Resource | None:
    own = request.call.resource
    if any(_matches_rule(request, rule, own) for rule in rules):
        return own
    if is_exact:
        return None
    others = [
        one
        for one in request.call.objects.registry.all()
        if one.path == own.path and one is not own
    ]
    for rule in rules:
        for other in others:
            if _matches_rule(request, rule, other):
                return other
    return None


def _matches_rule(request: AdmissionAttributes, rule: Tree, resource: Resource) -> bool:
    names = rule.get("resourceNames")
    return (
        _is_one_of(rule.get("operations"), request.operation)
        and _is_one_of(rule.get("apiGroups"), resource.group)
        and _is_one_of(rule.get("apiVersions"), resource.version)
        and _has_resource(rule.get("resources") or (), resource.plural, request.call.subresource)
        and _in_scope(rule.get("scope", "*"), request)
        and (not names or request.name in names)
    )


def _is_one_of(values: list[str] | None, value: str) -> bool:
    return "*" in (values or ()) or value in (values or ())


def _has_resource(resources: Iterable[str], plural: str, subresource: str) -> bool:
    for one in resources:
        resource, _, sub = one.partition("/")
        if resource in ("*", plural) and sub in ("*", subresource):
            return True
    return False


def _in_scope(scope: str, request: AdmissionAttributes) -> bool:
    if scope == "*":
        return True
    is_cluster_wide = request.is_namespace or not request.namespace
    return is_cluster_wide is (scope == "Cluster")
