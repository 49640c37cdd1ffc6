"""Taints that DeviceTaintRules add to devices (gate DRADeviceTaintRules).

Source: dynamic-resource-allocation v1.36, resourceslice/tracker/tracker.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from stowplan.objects.devices.device import (
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceSlice,
)

_ALL_DEVICES = DeviceTaintSelector()


class TaintedSlices:
    """Slices with the taints of rules. A slice stays the same object while neither it nor a rule
    for it changes."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[ResourceSlice, tuple[DeviceTaintRule, ...], ResourceSlice]] = {}

    def of(
        self, slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]
    ) -> list[ResourceSlice]:
        """The slices, devices with their own taints first and those of rules after them.

        Differs: rules add their taints in the order of their names; in the original the order is
        random. No decision depends on it.
        """
        in_order = sorted(rules, key=lambda one: one.name)
        if not in_order:
            self._kept.clear()
            return list(slices)
        before, self._kept = self._kept, {}
        return [self._tainted(one, in_order, before) for one in slices]

    def _tainted(
        self,
        one: ResourceSlice,
        rules: list[DeviceTaintRule],
        before: dict[str, tuple[ResourceSlice, tuple[DeviceTaintRule, ...], ResourceSlice]],
    ) -> ResourceSlice:
        of_slice = tuple(rule for rule in rules if _is_for_slice(rule, one))
        if not of_slice:
            return one
        held = before.get(one.name)
        if held is not None and held[0] is one and held[1] == of_slice:
            found = held[2]
        else:
            devices = tuple(_with_taints(device, of_slice) for device in one.spec.devices)
            found = replace(one, spec=replace(one.spec, devices=devices))
        self._kept[one.name] = one, of_slice, found
        return found


def taints_of(device: Device, rules: Iterable[DeviceTaintRule]) -> tuple[DeviceTaint, ...]:
    """The taints that rules for the device's slice add to it."""
    return tuple(
        rule.spec.taint
        for rule in rules
        if (rule.spec.device_selector or _ALL_DEVICES).device in (None, device.name)
    )


def _with_taints(device: Device, rules: Iterable[DeviceTaintRule]) -> Device:
    added = taints_of(device, rules)
    return replace(device, taints=(*device.taints, *added)) if added else device


def _is_for_slice(rule: DeviceTaintRule, one: ResourceSlice) -> bool:
    selector = rule.spec.device_selector or _ALL_DEVICES
    return (
        selector.driver in (None, one.spec.driver)
        and selector.pool in (None, one.spec.pool.name)
    )  # fmt: skip
