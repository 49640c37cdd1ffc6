"""Roles and their bindings: what is valid and what stays.

Source: kubernetes v1.36, pkg/apis/rbac/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stowplan.apis.kind.strategy import Check, UpdateCheck
from stowplan.apis.machinery.errors import Cause, invalid, not_supported, required
from stowplan.apis.validation import field_checks

Tree = dict[str, Any]

GROUP = "rbac.authorization.k8s.io"


def _rules(obj: Tree, namespaced: bool) -> Iterator[Cause]:
    for at, rule in enumerate(obj["rules"] or ()):
        here = f"rules[{at}]"
        if not rule["verbs"]:
            yield required(f"{here}.verbs", "verbs must contain at least one value")
        urls = rule.get("nonResourceURLs")
        if urls:
            if namespaced:
                text = "namespaced rules cannot apply to non-resource URLs"
                yield invalid(f"{here}.nonResourceURLs", urls, text)
            if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
                text = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid(f"{here}.nonResourceURLs", urls, text)
            continue
        if not rule.get("apiGroups"):
            text = "resource rules must supply at least one api group"
            yield required(f"{here}.apiGroups", text)
        if not rule.get("resources"):
            text = "resource rules must supply at least one resource"
            yield required(f"{here}.resources", text)


def _role(obj: Tree) -> Iterator[Cause]:
    return _rules(obj, namespaced=True)


def _cluster_role(obj: Tree) -> Iterator[Cause]:
    yield from _rules(obj, namespaced=False)
    aggregation = obj.get("aggregationRule")
    if aggregation is None:
        return
    path = "aggregationRule.clusterRoleSelectors"
    selectors = aggregation.get("clusterRoleSelectors", [])
    if not selectors:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield required(path, text)
    for at, selector in enumerate(selectors):
        yield from field_checks.selector(selector, f"{path}[{at}]")


def _any_binding(obj: Tree, kinds: list[str], namespaced: bool) -> Iterator[Cause]:
    role = obj["roleRef"]
    if role["apiGroup"] != GROUP:
        yield not_supported("roleRef.apiGroup", role["apiGroup"], [GROUP])
    if role["kind"] not in kinds:
        yield not_supported("roleRef.kind", role["kind"], kinds)
    if not role["name"]:
        yield required("roleRef.name")
    else:
        yield from field_checks.path_segment(role["name"], "roleRef.name")
    for at, subject in enumerate(obj.get("subjects", ())):
        yield from _subject(subject, namespaced, f"subjects[{at}]")


def _subject(one: Tree, namespaced: bool, path: str) -> Iterator[Cause]:
    if not one["name"]:
        yield required(f"{path}.name")
    group = one.get("apiGroup", "")
    match one["kind"]:
        case "ServiceAccount":
            if one["name"]:
                yield from field_checks.dns_subdomain(one["name"], f"{path}.name")
            if group:
                yield not_supported(f"{path}.apiGroup", group, [""])
            if not namespaced and not one.get("namespace"):
                yield required(f"{path}.namespace")
        case "User" | "Group":
            if group != GROUP:
                yield not_supported(f"{path}.apiGroup", group, [GROUP])
        case other:
            kinds = ["ServiceAccount", "User", "Group"]
            yield not_supported(f"{path}.kind", other, kinds)


def _role_binding(obj: Tree) -> Iterator[Cause]:
    return _any_binding(obj, ["Role", "ClusterRole"], namespaced=True)


def _cluster_role_binding(obj: Tree) -> Iterator[Cause]:
    return _any_binding(obj, ["ClusterRole"], namespaced=False)


def _same_role(new: Tree, old: Tree) -> Iterator[Cause]:
    if new["roleRef"] != old["roleRef"]:
        role = new["roleRef"]
        shown = {"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]}
        yield invalid("roleRef", shown, "cannot change roleRef")


def _role_binding_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _role_binding(new)
    yield from _same_role(new, old)


def _cluster_role_binding_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _cluster_role_binding(new)
    yield from _same_role(new, old)


CHECKS: Mapping[str, tuple[Check, UpdateCheck | None]] = {
    "Role": (_role, None),
    "ClusterRole": (_cluster_role, None),
    "RoleBinding": (_role_binding, _role_binding_update),
    "ClusterRoleBinding": (_cluster_role_binding, _cluster_role_binding_update),
}
"""By kind: what is valid, and what an update may not change."""
