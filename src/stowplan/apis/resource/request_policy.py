"""Validation of the policy for requests of a capacity that several claims share.

Source: kubernetes v1.36, pkg/apis/resource/validation/validation.go (validateRequestPolicy).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    required,
    too_many,
)
from stowplan.apis.schema.canonical_quantity import amount, compare, format_quantity, suffix_of
from stowplan.objects.encoding.tree import Tree

_VALUES_MAX = 10


def validate_request_policy(capacity: str, policy: Tree, path: str) -> Iterator[Cause]:
    """The default, and either values or a range that requests are rounded up to."""
    values, span = policy.get("validValues") or [], policy.get("validRange")
    name = "validValues" if values else "validRange"
    if values and span is not None:
        text = 'exactly one policy can be specified, cannot specify "validValues" and "validRange"'
        yield forbidden_field(path, f"{text} at the same time")
    elif (values or span is not None) and policy.get("default") is None:
        yield required(f"{path}.default", f"required when {name} is defined")
    elif values:
        yield from _values(policy["default"], capacity, values, f"{path}.{name}")
    elif span is not None:
        yield from _range(policy["default"], capacity, span, f"{path}.{name}")


def _values(default: str, capacity: str, values: list[str], path: str) -> Iterator[Cause]:
    for at, (one, following) in enumerate(pairwise(values)):
        if compare(one, following) > 0:
            text = "values must be sorted in ascending order"
            yield invalid(f"{path}[{at + 1}]", following, text)
    found = False
    if len(values) > _VALUES_MAX:
        yield too_many(path, len(values), _VALUES_MAX)
    else:
        for at, one in enumerate(values):
            if compare(one, capacity) > 0:
                text = f"option is larger than capacity value: {capacity}"
                yield invalid(f"{path}[{at}]", one, text)
            found = found or compare(one, default) == 0
        seen: set[int] = set()
        for at, one in enumerate(values):
            whole = amount(one).value()
            if whole in seen:
                yield duplicate(f"{path}[{at}]", str(whole))
            seen.add(whole)
    if not found:
        yield invalid(path, default, "default value is not valid according to the requestPolicy")


def _range(default: str, capacity: str, span: Tree, path: str) -> Iterator[Cause]:
    least, most, step = (span.get(name) for name in ("min", "max", "step"))
    if least is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    if compare(least, capacity) > 0:
        yield invalid(f"{path}.min", least, f"min is larger than capacity value: {capacity}")
    if compare(default, least) < 0:
        yield invalid(f"{path}.min", default, f"default is less than min: {least}")
    if most is not None:
        here = f"{path}.max"
        if compare(least, most) > 0:
            yield invalid(here, least, f"min is larger than max: {most}")
        if compare(most, capacity) > 0:
            yield invalid(here, most, f"max is larger than capacity value: {capacity}")
        if compare(default, most) > 0:
            yield invalid(here, default, f"default is more than max: {most}")
    if step is None:
        return
    added = format_quantity(amount(least) + amount(step), suffix_of(least))
    if compare(added, capacity) > 0:
        text = f"one step {added} is larger than capacity value: {capacity}"
        yield invalid(f"{path}.step", step, text)
    for value in (default, most):
        width = amount(step).value()
        if value is not None and width and (amount(value).value() - amount(least).value()) % width:
            text = f"value is not a multiple of a given step ({step}) from ({least})"
            yield invalid(f"{path}.step", value, text)
