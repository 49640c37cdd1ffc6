"""CEL selectors of devices, compiled once per text, evaluated once per distinct device shape.

The shape of a device is all that a selector can read: driver, attributes, capacity, and whether it
may be shared.

Source: dynamic-resource-allocation v1.36, cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from stowplan.objects.devices.device import Device

if TYPE_CHECKING:
    from stowplan.plugins.devices.selector_evaluation import SelectorEvaluation

_KEPT_MAX = 1 << 18


class SelectorFault(Exception):
    """A selector that does not compile or fails on a device, in the original's words."""


def shape_of(driver: str, device: Device) -> Hashable:
    """All that selectors can read of a device."""
    attributes = tuple(device.attributes.items())
    capacity = tuple((name, one.value) for name, one in device.capacity.items())
    return driver, device.allow_multiple_allocations, attributes, capacity


class DeviceSelectors:
    """Answers of selectors, kept by text and shape."""

    def __init__(self, *, with_lists: bool = False) -> None:
        """with_lists: attributes may be lists."""
        self._evaluation: SelectorEvaluation | None = None
        self.with_lists = with_lists
        self._answers: dict[tuple[str, Hashable], bool | str] = {}

    def matches(self, expression: str, shape: Hashable, driver: str, device: Device) -> bool:
        """True where the expression holds for the device; raises SelectorFault."""
        answer = self._answers.get((expression, shape))
        if answer is None:
            if len(self._answers) >= _KEPT_MAX:
                self._answers.clear()
            answer = self._answers[expression, shape] = self._evaluated().answer(
                expression, driver, device
            )
        if isinstance(answer, str):
            raise SelectorFault(answer)
        return answer

    def _evaluated(self) -> SelectorEvaluation:
        if self._evaluation is None:
            # Imported here: most clusters have no selector, and CEL takes long to import.
            from stowplan.plugins.devices.selector_evaluation import SelectorEvaluation

            self._evaluation = SelectorEvaluation(with_lists=self.with_lists)
        return self._evaluation
