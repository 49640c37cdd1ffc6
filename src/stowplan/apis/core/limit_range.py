"""LimitRange.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go, pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import CREATED_AT
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

TYPES = """
LimitType = string

LimitRange
  +PartialObjectMetadata
  spec LimitRangeSpec

LimitRangeSpec
  limits [LimitRangeItem]!

LimitRangeItem
  type LimitType!
  max ResourceList
  min ResourceList
  default ResourceList
  defaultRequest ResourceList
  maxLimitRequestRatio ResourceList
"""
_LIMIT_TYPES = ("Container", "PersistentVolumeClaim", "Pod")


def set_limit_range_item_defaults(one: Tree) -> None:
    """For containers, `default` is filled from `max`, `defaultRequest` from `default` and `min`."""
    if one["type"] != "Container":
        return
    default = one.setdefault("default", {})
    requests = one.setdefault("defaultRequest", {})
    for source, target in (
        (one.get("max", {}), default),
        (default, requests),
        (one.get("min", {}), requests),
    ):
        for name, amount in source.items():
            target.setdefault(name, amount)
    for name in ("default", "defaultRequest"):
        if not one[name]:
            del one[name]


def _validate(obj: Tree) -> Iterator[Cause]:
    """Limits by type: min <= defaultRequest <= default <= max."""
    seen: set[str] = set()
    for at, one in enumerate(obj["spec"]["limits"] or ()):
        here = f"spec.limits[{at}]"
        kind = one["type"]
        if kind not in _LIMIT_TYPES and "/" not in kind:
            yield invalid(f"{here}.type", kind, "must be a standard limit type or fully qualified")
        yield from field_checks.unique(kind, seen, f"{here}.type")
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            for resource in sorted(one.get(name, {})):
                yield from resource_requirements.validate_resource_name(
                    resource, f"{here}.{name}[{resource}]"
                )
        if kind == "Pod":
            for name in ("default", "defaultRequest"):
                if one.get(name):
                    yield forbidden_field(
                        f"{here}.{name}", "may not be specified when `type` is 'Pod'"
                    )
        yield from _validate_order(one, here)


def _validate_order(one: Tree, path: str) -> Iterator[Cause]:
    order = (("min", "min"), ("defaultRequest", "default request"), ("default", "default"))
    names = [*order, ("max", "max")]
    resources = sorted({name for which, _ in names for name in one.get(which, {})})
    for resource in resources:
        for low, (lower, lower_name) in enumerate(names):
            for upper, upper_name in names[low + 1 :]:
                small = one.get(lower, {}).get(resource)
                large = one.get(upper, {}).get(resource)
                if small is None or large is None or canonical_quantity.compare(small, large) <= 0:
                    continue
                relation = f"{lower_name} value {small} is greater than {upper_name} value {large}"
                yield invalid(f"{path}.{lower}[{resource}]", small, relation)


KIND = KindRegistration(
    kind="LimitRange",
    types=TYPES,
    defaults={"core/v1.LimitRangeItem": set_limit_range_item_defaults},
    strategy=BuiltinStrategy(_validate, create_on_update=True),
    short_names=("limits",),
    table=CREATED_AT,
)
