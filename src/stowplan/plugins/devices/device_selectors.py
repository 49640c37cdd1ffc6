"""CEL selectors of devices, compiled once per text, evaluated once per distinct device shape.

The shape of a device is all that a selector can read: driver, attributes, capacity, and whether it
may be shared.

Source: dynamic-resource-allocation v1.36, cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Hashable
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
_KEPT_MAX = 1 << 18


class SelectorFault(Exception):
    """A selector that does not compile or fails on a device, in the original's words."""


def shape_of(driver: str, device: Device) -> Hashable:
    """All that selectors can read of a device."""
    attributes = tuple(device.attributes.items())
    capacity = tuple((name, one.value) for name, one in device.capacity.items())
    return driver, device.allow_multiple_allocations, attributes, capacity


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


class DeviceSelectors:
    """Answers of selectors, kept by text and shape."""

    def __init__(self, *, with_lists: bool = False) -> None:
        """with_lists: attributes may be lists."""
        self._environment = device_environment(with_lists=with_lists)
        self.with_lists = with_lists
        self._answers: dict[tuple[str, Hashable], bool | str] = {}

    def matches(self, expression: str, shape: Hashable, driver: str, device: Device) -> bool:
        """True where the expression holds for the device; raises SelectorFault."""
        answer = self._answers.get((expression, shape))
        if answer is None:
            if len(self._answers) >= _KEPT_MAX:
                self._answers.clear()
            answer = self._answers[expression, shape] = self._answer(expression, driver, device)
        if isinstance(answer, str):
            raise SelectorFault(answer)
        return answer

    def _answer(self, expression: str, driver: str, device: Device) -> bool | str:
        """The answer, or the text of the error."""
        try:
            program = compile_selector(self._environment, expression)
        except DeviceSelectorError as fault:
            return f"CEL compile error: {fault}"
        try:
            variable = device_value(driver, device, with_lists=self.with_lists)
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
