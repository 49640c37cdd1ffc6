"""Constraints of a claim: attributes that its devices share, or in which they all differ.

Source: dynamic-resource-allocation v1.36, structured/internal/incubating: matchAttributeConstraint
in allocator_incubating.go, distinctAttributeConstraint in constraint.go; for lists the same in
structured/internal/experimental.
"""

from __future__ import annotations

from typing import Any

from stowplan.objects.devices.device import Device, DeviceAttribute
from stowplan.objects.devices.device_claim import DeviceConstraint
from stowplan.plugins.devices.pools.device_pools import DeviceId

AttributeValue = tuple[str, object]
"""(kind, value); the kind "unknown" equals nothing."""
AttributeSet = tuple[str, frozenset[Any]]
"""(kind, values)."""


def _value_of(attribute: DeviceAttribute) -> AttributeValue:
    kinds = (
        ("string", attribute.string_value),
        ("int", attribute.int_value),
        ("bool", attribute.bool_value),
        ("version", attribute.version_value),
    )
    return next(((kind, held) for kind, held in kinds if held is not None), ("unknown", None))


def _attribute_of(device: Device, place: DeviceId, name: str) -> DeviceAttribute | None:
    """The attribute of a qualified name; its driver may leave its own domain out."""
    found = device.attributes.get(name)
    if found is not None:
        return found
    domain, slash, plain = name.partition("/")
    return device.attributes.get(plain) if slash and domain == place[0] else None


def find_attribute(device: Device, place: DeviceId, name: str) -> AttributeValue | None:
    """The attribute of a qualified name, a single value."""
    found = _attribute_of(device, place, name)
    return None if found is None else _value_of(found)


def find_values(device: Device, place: DeviceId, name: str) -> AttributeSet | None:
    """The attribute of a qualified name as a set of values of one kind, of a list or a single one;
    of kind "unknown" where it has none."""
    found = _attribute_of(device, place, name)
    if found is None:
        return None
    lists = (
        ("int", found.int_values),
        ("bool", found.bool_values),
        ("string", found.string_values),
        ("version", found.version_values),
    )
    for kind, held in lists:
        if held:
            return kind, frozenset(held)
    kind, value = _value_of(found)
    return (kind, frozenset(() if kind == "unknown" else (value,)))


class ActiveConstraint:
    """A constraint during a search, with the devices that were added."""

    def __init__(self, constraint: DeviceConstraint, *, with_lists: bool) -> None:
        """constraint: with one of its two attributes. with_lists: attributes may be lists (gate
        DRAListTypeAttributes); then devices match if they have a value in common, and are distinct
        if no two have."""
        self._requests = frozenset(constraint.requests)
        self._matches = constraint.match_attribute is not None
        self._with_lists = with_lists
        name = constraint.match_attribute if self._matches else constraint.distinct_attribute
        self._attribute = name or ""
        self._n_devices = 0
        self._first: AttributeValue | None = None
        self._common: AttributeSet = "unknown", frozenset()
        # Per request, as in the original: of several devices of a request the last one counts.
        self._values: dict[str, AttributeValue] = {}
        self._sets: dict[str, AttributeSet] = {}

    def _concerns(self, request: str, subrequest: str) -> bool:
        if not self._requests or request in self._requests:
            return True
        return bool(subrequest) and f"{request}/{subrequest}" in self._requests

    def add(self, request: str, subrequest: str, device: Device, place: DeviceId) -> bool:
        """Add a device; False where it breaks the constraint, and then it is not added."""
        if not self._concerns(request, subrequest):
            return True
        if self._with_lists:
            values = find_values(device, place, self._attribute)
            is_added = values is not None and self._adds(request, values)
        else:
            value = find_attribute(device, place, self._attribute)
            is_added = value is not None and self._adds_value(request, value)
        self._n_devices += is_added
        return is_added

    def _adds_value(self, request: str, value: AttributeValue) -> bool:
        if self._n_devices == 0:
            self._first = value
        elif not self._agrees(value):
            return False
        if not self._matches:
            self._values[request] = value
        return True

    def _agrees(self, value: AttributeValue) -> bool:
        if self._matches:
            return value == self._first and value[0] != "unknown"
        if value[0] == "unknown" and self._values:
            return False
        return value not in self._values.values()

    def _adds(self, request: str, values: AttributeSet) -> bool:
        kind, held = values
        if self._matches:
            if self._n_devices > 0:
                first_kind, common = self._common
                held = common & held if kind == first_kind else frozenset()
            if not held:
                return False
            # As in the original, what was narrowed stays so when a device is removed again.
            self._common = kind, held
            return True
        if self._n_devices > 0 and (
            kind == "unknown" or any(_have_common(values, one) for one in self._sets.values())
        ):
            return False
        self._sets[request] = values
        return True

    def remove(self, request: str, subrequest: str) -> None:
        """Undo `add` of a device of the request."""
        if self._concerns(request, subrequest):
            self._n_devices -= 1
            self._values.pop(request, None)
            self._sets.pop(request, None)


def _have_common(one: AttributeSet, other: AttributeSet) -> bool:
    return one[0] == other[0] and bool(one[1] & other[1])
