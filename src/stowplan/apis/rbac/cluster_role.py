"""ClusterRole.

Source: kubernetes v1.36, pkg/registry/rbac, pkg/apis/rbac/validation/validation.go,
pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import CREATED_AT
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import PATH_SEGMENT_NAME, BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, required
from stowplan.apis.rbac.role import GROUP, validate_rules
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
ClusterRole
  +PartialObjectMetadata
  rules [PolicyRule]!
  aggregationRule AggregationRule?

AggregationRule
  clusterRoleSelectors [LabelSelector]
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    yield from validate_rules(obj, namespaced=False)
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


KIND = KindRegistration(
    group=GROUP,
    kind="ClusterRole",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(_validate, names=PATH_SEGMENT_NAME, create_on_update=True),
    table=CREATED_AT,
)
