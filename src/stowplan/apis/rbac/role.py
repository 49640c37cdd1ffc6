"""Role and ClusterRole.

Source: kubernetes v1.36, pkg/registry/rbac, pkg/apis/rbac/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import CREATED_AT
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import PATH_SEGMENT_NAME, BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, invalid, required
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
Role
  +PartialObjectMetadata
  rules [PolicyRule]!

ClusterRole
  +Role
  aggregationRule AggregationRule?

AggregationRule
  clusterRoleSelectors [LabelSelector]

PolicyRule
  verbs [string]!
  apiGroups [string]
  resources [string]
  resourceNames [string]
  nonResourceURLs [string]
"""
_SELECTORS = "aggregationRule.clusterRoleSelectors"
GROUP = "rbac.authorization.k8s.io"


def _validate_rules(obj: Tree, namespaced: bool = True) -> Iterator[Cause]:
    """The rules of a role. namespaced: they cannot name non-resource URLs."""
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
            yield required(f"{here}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{here}.resources", "resource rules must supply at least one resource")


def _validate_cluster_role(obj: Tree) -> Iterator[Cause]:
    yield from _validate_rules(obj, namespaced=False)
    aggregation = obj.get("aggregationRule")
    if aggregation is None:
        return
    selectors = aggregation.get("clusterRoleSelectors", [])
    if not selectors:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield required(_SELECTORS, text)
    for at, selector in enumerate(selectors):
        yield from field_checks.selector(selector, f"{_SELECTORS}[{at}]")


KIND = KindRegistration(
    group=GROUP,
    kind="Role",
    types=TYPES,
    strategy=BuiltinStrategy(_validate_rules, names=PATH_SEGMENT_NAME, create_on_update=True),
    table=CREATED_AT,
)
CLUSTER_ROLE_KIND = KindRegistration(
    group=GROUP,
    kind="ClusterRole",
    namespaced=False,
    strategy=BuiltinStrategy(
        _validate_cluster_role, names=PATH_SEGMENT_NAME, create_on_update=True
    ),
    table=CREATED_AT,
)
