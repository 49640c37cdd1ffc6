"""LimitRange and ResourceQuota: limits of the requests of a namespace, checked at admission.

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
"""Fields of a LimitRangeItem with quantities -> their names in JSON."""


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
    """A LimitRange: defaults and limits of containers and pods of its namespace."""

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
    """A ResourceQuota: limits of the sum of all pods of its namespace."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
