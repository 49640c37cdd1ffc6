"""Evaluation of selectors of devices: what they see of a device, and their answers.

Imported with the first selector: most clusters have none, and CEL is large.

Source: dynamic-resource-allocation v1.36, cel/compile.go.
"""

from __future__ import annotations

from typing import Any

from stowplan.apis.resource.device_environment import (
    DeviceSelectorError,
    compile_selector,
    device_environment,
)
from stowplan.cel.libraries.quantities import quantity_of
from stowplan.cel.libraries.versions import parse_version
from stowplan.cel.values import (
    CostLimitError,
    DefaultMapValue,
    EvaluationError,
    MapValue,
    kind_of,
)
from stowplan.objects.devices.device import Device, DeviceAttribute

COST_LIMIT = 1_000_000


def device_value(driver: str, device: Device, *, with_lists: bool = False) -> MapValue:
    """The variable `device`; raises EvaluationError for an attribute without a known value."""
    attributes: dict[str, list[tuple[str, Any]]] = {}
    for name, attribute in device.attributes.items():
        try:
            value = _attribute_value(attribute, with_lists)
        except EvaluationError as fault:
            raise EvaluationError(f"attribute {name}: {fault}") from None
        domain, plain = _split(name, driver)
        attributes.setdefault(domain, []).append((plain, value))
    capacity: dict[str, list[tuple[str, Any]]] = {}
    for name, one in device.capacity.items():
        domain, plain = _split(name, driver)
        capacity.setdefault(domain, []).append((plain, quantity_of(one.value)))
    return MapValue([
        ("driver", driver),
        ("allowMultipleAllocations", device.allow_multiple_allocations),
        ("attributes", _by_domain(attributes)),
        ("capacity", _by_domain(capacity)),
    ])  # fmt: skip


def _by_domain(held: dict[str, list[tuple[str, Any]]]) -> DefaultMapValue:
    return DefaultMapValue((domain, MapValue(pairs)) for domain, pairs in held.items())


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, plain = name.partition("/")
    return (domain, plain) if slash else (driver, name)


def _attribute_value(attribute: DeviceAttribute, with_lists: bool) -> Any:
    if with_lists:
        for values in (attribute.int_values, attribute.bool_values, attribute.string_values):
            if values is not None:
                return values
        if attribute.version_values is not None:
            return tuple(_version(text) for text in attribute.version_values)
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is not None:
        return _version(attribute.version_value)
    raise EvaluationError("unsupported attribute value")


def _version(text: str) -> Any:
    try:
        return parse_version(text)
    except EvaluationError as fault:
        raise EvaluationError(f"parse semantic version: {fault}") from None


class SelectorEvaluation:
    """Answers of selectors, compiled and evaluated anew for each question."""

    def __init__(self, *, with_lists: bool) -> None:
        """with_lists: attributes may be lists."""
        self._environment = device_environment(with_lists=with_lists)
        self._with_lists = with_lists

    def answer(self, expression: str, driver: str, device: Device) -> bool | str:
        """The answer, or the text of the error."""
        try:
            program = compile_selector(self._environment, expression)
        except DeviceSelectorError as fault:
            return f"CEL compile error: {fault}"
        try:
            variable = device_value(driver, device, with_lists=self._with_lists)
            value, _ = program.evaluate({"device": variable}, COST_LIMIT)
        except (EvaluationError, CostLimitError) as fault:
            return f"CEL runtime error: {fault}"
        if not isinstance(value, bool):
            kind = kind_of(value)
            return (
                f"CEL runtime error: CEL result of type {kind} could not be converted to bool: "
                f"unsupported native conversion from {kind} to 'bool'"
            )
        return value
