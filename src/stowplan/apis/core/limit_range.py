"""LimitRange.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go, pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import CREATED_AT
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, required
from stowplan.apis.machinery.object_meta import UidGenerator
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

TYPES = """
LimitType = string

LimitRange
  +PartialObjectMetadata
  spec LimitRangeSpec -- bounds and defaults.

LimitRangeSpec
  limits [LimitRangeItem]! -- one entry per type.

LimitRangeItem
  type LimitType! -- Pod, Container or PersistentVolumeClaim.
  max ResourceList -- greatest amounts.
  min ResourceList -- least amounts.
  default ResourceList -- limits of containers that name none.
  defaultRequest ResourceList -- requests of containers that name none.
  maxLimitRequestRatio ResourceList -- greatest ratio of limit to request.
"""
_LIMIT_TYPES = ("Container", "PersistentVolumeClaim", "Pod")
_MILLI_MAX = (2**63 - 1) // 1000


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
        here, kind = f"spec.limits[{at}]", one["type"]
        yield from _validate_type(kind, f"{here}.type")
        yield from field_checks.unique(kind, seen, f"{here}.type")
        for name in ("max", "min"):
            yield from _validate_names(one, name, here)
        for name in ("default", "defaultRequest"):
            if kind != "Pod":
                yield from _validate_names(one, name, here)
            elif one.get(name):
                text = "may not be specified when `type` is 'Pod'"
                yield forbidden_field(f"{here}.{name}", text)
        amounts = {**one.get("min", {}), **one.get("max", {})}
        if kind == "PersistentVolumeClaim" and "storage" not in amounts:
            text = "either minimum or maximum storage value is required, but neither was provided"
            yield required(f"{here}.limits", text)
        yield from _validate_names(one, "maxLimitRequestRatio", here)
        yield from _validate_order(one, here)


def _validate_type(kind: str, path: str) -> Iterator[Cause]:
    problems = list(field_checks.qualified_name(kind, path))
    yield from problems
    if not problems and kind not in _LIMIT_TYPES and "/" not in kind:
        yield invalid(path, kind, "must be a standard limit type or fully qualified")


def _validate_names(one: Tree, name: str, path: str) -> Iterator[Cause]:
    of_pods = one["type"] in ("Container", "Pod")
    check = resource_requirements.validate_container_resource_name
    for resource in sorted(one.get(name, {})):
        here = f"{path}.{name}[{resource}]"
        if of_pods:
            yield from check(resource, here)
        else:
            yield from resource_requirements.validate_resource_name(resource, here)


_ORDER = (
    ("min", "min", "max", "max", "min", "min"),
    ("min", "min", "defaultRequest", "default request", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request", "max", "max", "defaultRequest", "defaultRequest"),
    (
        "defaultRequest", "default request", "default", "default limit", "defaultRequest",
        "defaultRequest",
    ),
    ("min", "min", "default", "default", "default", "min"),
    ("default", "default", "max", "max", "default", "max"),
)  # fmt: skip
"""What must not exceed what: field and name of the lower, of the upper, the field that the cause
names, and the field whose value it prints."""


def _validate_order(one: Tree, path: str) -> Iterator[Cause]:
    fields = ["min", "max", "maxLimitRequestRatio"]
    if one["type"] != "Pod":
        fields += ["default", "defaultRequest"]
    given = {name: one.get(name, {}) for name in fields}
    for resource in sorted({name for which in given.values() for name in which}):
        amounts = {name: which[resource] for name, which in given.items() if resource in which}
        for lower, lower_name, upper, upper_name, field, printed in _ORDER:
            small, large = amounts.get(lower), amounts.get(upper)
            if small is None or large is None or canonical_quantity.compare(small, large) <= 0:
                continue
            relation = f"{lower_name} value {small} is greater than {upper_name} value {large}"
            yield invalid(f"{path}.{field}[{resource}]", amounts[printed], relation)
        yield from _validate_ratio(amounts, f"{path}.maxLimitRequestRatio[{resource}]")
        default, request = amounts.get("default"), amounts.get("defaultRequest")
        if (
            default is None
            or request is None
            or resource_requirements.is_overcommit_allowed(resource)
        ):
            continue
        if canonical_quantity.compare(default, request) != 0:
            text = f"default value {default} must equal to defaultRequest value {request}"
            yield invalid(f"{path}.defaultRequest[{resource}]", request, f"{text} in {resource}")


def _validate_ratio(amounts: dict[str, str], path: str) -> Iterator[Cause]:
    """The ratio of limit to request is at least 1 and at most max / min."""
    ratio = amounts.get("maxLimitRequestRatio")
    if ratio is None:
        return
    if canonical_quantity.compare(ratio, "1") < 0:
        yield invalid(path, ratio, f"ratio {ratio} is less than 1")
    if "min" not in amounts or "max" not in amounts:
        return
    least, most, given = (
        canonical_quantity.amount(amounts[name]) for name in ("min", "max", "maxLimitRequestRatio")
    )
    in_milli = max(given.value(), least.value(), most.value()) < _MILLI_MAX
    if in_milli:
        low, high, wanted = least.milli_value(), most.milli_value(), given.milli_value() / 1000
    else:
        low, high, wanted = least.value(), most.value(), float(given.value())
    if low == 0:
        return
    if wanted > high / low:
        yield invalid(path, ratio, f"ratio {ratio} is greater than max/min = {high / low:f}")


class LimitRangeStrategy(BuiltinStrategy):
    """One without a name gets a uid for it."""

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        super().prepare_create(obj, call)
        if not obj["metadata"].get("name"):
            obj["metadata"]["name"] = UidGenerator(call.rng).new()


KIND = KindRegistration(
    kind="LimitRange",
    types=TYPES,
    defaults={"core/v1.LimitRangeItem": set_limit_range_item_defaults},
    strategy=LimitRangeStrategy(_validate, create_on_update=True),
    short_names=("limits",),
    table=CREATED_AT,
)
