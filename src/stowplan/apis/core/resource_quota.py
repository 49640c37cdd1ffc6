"""ResourceQuota.

Source: kubernetes v1.36, pkg/registry/core/resourcequota, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, StatusStrategy
from stowplan.apis.machinery.errors import Cause, invalid, required
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

TYPES = """
ResourceQuotaScope ScopeSelectorOperator = string

ResourceQuota
  +PartialObjectMetadata
  spec ResourceQuotaSpec -- limits of the namespace.
  status ResourceQuotaStatus -- limits and usage.

ResourceQuotaSpec
  hard ResourceList -- greatest sums of requests, limits and objects.
  scopes [ResourceQuotaScope] -- count only pods of these kinds.
  scopeSelector ScopeSelector? -- count only pods that match.

ScopeSelector
  matchExpressions [ScopedResourceSelectorRequirement] -- all must match.

ScopedResourceSelectorRequirement
  scopeName ResourceQuotaScope! -- such as PriorityClass or BestEffort.
  operator ScopeSelectorOperator! -- In, NotIn, Exists or DoesNotExist.
  values [string] -- for In and NotIn.

ResourceQuotaStatus
  hard ResourceList -- limits that are enforced.
  used ResourceList -- sums in the namespace.
"""
_SCOPES = (
    "BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass",
    "Terminating", "VolumeAttributesClass",
)  # fmt: skip
_PODS = frozenset({"pods"})
_COMPUTE = frozenset(
    {"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
)
_QUOTA_RESOURCES = (
    _PODS
    | _COMPUTE
    | {"ephemeral-storage", "requests.storage", "requests.ephemeral-storage"}
    | {"limits.ephemeral-storage", "resourcequotas", "services", "replicationcontrollers"}
    | {"secrets", "persistentvolumeclaims", "configmaps", "services.nodeports"}
    | {"services.loadbalancers"}
)
_SCOPED = {
    **dict.fromkeys(_SCOPES, _PODS | _COMPUTE),
    "BestEffort": _PODS,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The standard resources that each scope applies to."""
_EXISTING = frozenset(_SCOPES) - {"PriorityClass", "VolumeAttributesClass"}
_MUST_EXIST = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating,"
    " ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort,"
    " ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from _validate_amounts(spec.get("hard", {}), "spec.hard")
    yield from _validate_scopes(spec)
    if "scopeSelector" in spec:
        yield from _validate_scope_selector(spec)


def _validate_amounts(given: dict[str, str], path: str) -> Iterator[Cause]:
    for name, value in sorted(given.items()):
        here = f"{path}[{name}]"
        yield from resource_requirements.validate_resource_name(name, here)
        huge = name.startswith(("hugepages-", "requests.hugepages-"))
        if "/" not in name and name not in _QUOTA_RESOURCES and not huge:
            yield invalid(here, name, "must be a standard resource for quota")
        yield from resource_requirements.validate_resource_quantity(name, value, here)


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    for name in ("hard", "used"):
        yield from _validate_amounts(new["status"].get(name, {}), f"status.{name}")


def _validate_scopes(spec: Tree) -> Iterator[Cause]:
    scopes, path = spec.get("scopes", []), "spec.scopes"
    limited = _limited_resources(spec)
    for scope in scopes:
        if scope not in _SCOPES:
            yield invalid(path, scopes, "unsupported scope")
        for _ in _resources_outside_scope(scope, limited):
            yield invalid(path, scopes, "unsupported scope applied to resource")
    yield from _validate_conflicting_scopes(set(scopes), path, scopes)


def _limited_resources(spec: Tree) -> list[str]:
    return sorted(_QUOTA_RESOURCES.intersection(spec.get("hard", {})))


def _resources_outside_scope(scope: str, limited: list[str]) -> Iterator[str]:
    """Standard resources that the scope does not apply to."""
    for name in limited:
        if name not in _SCOPED.get(scope, _QUOTA_RESOURCES):
            yield name


def _validate_conflicting_scopes(
    scopes: set[str], path: str, printed: list[str] | None
) -> Iterator[Cause]:
    for pair in (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")):
        if scopes.issuperset(pair):
            yield invalid(path, printed, "conflicting scopes")


def _validate_scope_selector(spec: Tree) -> Iterator[Cause]:
    path = "spec.scopeSelector.matchExpressions"
    terms = spec["scopeSelector"].get("matchExpressions") or []
    limited = _limited_resources(spec)
    for term in terms:
        scope, operator, values = term["scopeName"], term["operator"], term.get("values", [])
        if scope not in _SCOPES:
            yield invalid(f"{path}.scopeName", scope, "unsupported scope")
        for _ in _resources_outside_scope(scope, limited):
            printed = internal_form("core/v1.ScopeSelector", spec["scopeSelector"])
            yield invalid(path, printed, "unsupported scope applied to resource")
        if scope in _EXISTING and operator != "Exists":
            yield invalid(f"{path}.operator", operator, _MUST_EXIST)
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be at least one value when `operator` is 'In' or 'NotIn'"
                yield required(f"{path}.values", f"{text} for scope selector")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "must be no value when `operator` is 'Exist' or 'DoesNotExist'"
                yield invalid(f"{path}.values", values, f"{text} for scope selector")
        else:
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    scopes = {term["scopeName"] for term in terms}
    yield from _validate_conflicting_scopes(scopes, path, spec.get("scopes"))


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _validate(new)
    if set(new["spec"].get("scopes", ())) != set(old["spec"].get("scopes", ())):
        yield invalid("spec.scopes", new["spec"].get("scopes"), field_checks.IMMUTABLE)


def _cells(obj: Tree, now: float) -> list[Any]:
    status = obj["status"]
    hard, used = status.get("hard", {}), status.get("used", {})
    columns: tuple[list[str], list[str]] = ([], [])
    for name in sorted(hard):
        columns[name.startswith("limits.")].append(f"{name}: {used.get(name, '0')}/{hard[name]}")
    return [", ".join(columns[0]), ", ".join(columns[1])]


KIND = KindRegistration(
    kind="ResourceQuota",
    types=TYPES,
    strategy=BuiltinStrategy(_validate, _validate_update, status={}, returns_deleted=True),
    status=StatusStrategy(_validate_status_update),
    short_names=("quota",),
    table=PrintedTable("Name, Request, Limit, Age", _cells),
)
