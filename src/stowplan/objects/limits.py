"""LimitRange and ResourceQuota: what admission lets the pods of a namespace ask for.

Source: Kubernetes core/v1 API, v1.36.
"""

from __future__ import annotations

from stowplan.objects.meta import NamespacedObject, Value
from stowplan.objects.quantity import Quantity

LIMIT_FIELDS = {
    "max": "max",
    "min": "min",
    "default": "default",
    "default_request": "defaultRequest",
    "max_limit_request_ratio": "maxLimitRequestRatio",
}
"""The fields of a LimitRangeItem that hold quantities -> their names on the wire."""


class LimitRangeItem(Value, frozen=True):
    """An entry of `spec.limits`. type: Container, Pod or PersistentVolumeClaim."""

    type: str = ""
    max: dict[str, Quantity] = {}
    min: dict[str, Quantity] = {}
    default: dict[str, Quantity] = {}
    default_request: dict[str, Quantity] = {}
    max_limit_request_ratio: dict[str, Quantity] = {}


class LimitRangeSpec(Value, frozen=True):
    """`spec` of a LimitRange."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(NamespacedObject, frozen=True):
    """A LimitRange: defaults and bounds of containers and pods of its namespace."""

    spec: LimitRangeSpec = LimitRangeSpec()


class ScopeRequirement(Value, frozen=True):
    """An entry of `spec.scopeSelector.matchExpressions`."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Value, frozen=True):
    """`spec.scopeSelector` of a ResourceQuota."""

    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Value, frozen=True):
    """`spec` of a ResourceQuota."""

    hard: dict[str, Quantity] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuota(NamespacedObject, frozen=True):
    """A ResourceQuota: how much all pods of its namespace may ask for together."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
