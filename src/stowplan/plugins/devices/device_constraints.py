"""Constraints of a claim: attributes that its devices share, or in which they all differ.

Source: dynamic-resource-allocation v1.36, structured/internal/incubating: matchAttributeConstraint
in allocator_incubating.go, distinctAttributeConstraint in constraint.go.
"""

from __future__ import annotations

from stowplan.objects.devices.device import Device, DeviceAttribute
from stowplan.objects.devices.device_claim import DeviceConstraint
from stowplan.plugins.devices.device_pools import DeviceId

AttributeValue = tuple[str, object]
"""(kind, value); the kind "unknown" equals nothing."""


def _value_of(attribute: DeviceAttribute) -> AttributeValue:
    kinds = (
        ("string", attribute.string_value),
        ("int", attribute.int_value),
        ("bool", attribute.bool_value),
        ("version", attribute.version_value),
    )
    return next(((kind, held) for kind, held in kinds if held is not None), ("unknown", None))


def find_attribute(device: Device, place: DeviceId, name: str) -> AttributeValue | None:
    """The attribute of a qualified name; its driver may leave its own domain out."""
    found = device.attributes.get(name)
    if found is None:
        domain, slash, plain = name.partition("/")
        if not slash or domain != place[0]:
            return None
        found = device.attributes.get(plain)
    return None if found is None else _value_of(found)


class ActiveConstraint:
    """A constraint during a search, with the devices that were added."""

    def __init__(self, constraint: DeviceConstraint) -> None:
        """constraint: with one of its two attributes."""
        self._requests = frozenset(constraint.requests)
        self._matches = constraint.match_attribute is not None
        name = constraint.match_attribute if self._matches else constraint.distinct_attribute
        self._attribute = name or ""
        self._n_devices = 0
        self._first: AttributeValue | None = None
        # Per request, as in the original: of several devices of a request the last one counts.
        self._values: dict[str, AttributeValue] = {}

    def _concerns(self, request: str, subrequest: str) -> bool:
        if not self._requests or request in self._requests:
            return True
        return bool(subrequest) and f"{request}/{subrequest}" in self._requests

    def add(self, request: str, subrequest: str, device: Device, place: DeviceId) -> bool:
        """Add a device; False where it breaks the constraint, and then it is not added."""
        if not self._concerns(request, subrequest):
            return True
        value = find_attribute(device, place, self._attribute)
        if value is None:
            return False
        if self._n_devices == 0:
            self._first = value
        elif not self._agrees(value):
            return False
        self._n_devices += 1
        if not self._matches:
            self._values[request] = value
        return True

    def _agrees(self, value: AttributeValue) -> bool:
        if self._matches:
            return value == self._first and value[0] != "unknown"
        if value[0] == "unknown" and self._values:
            return False
        return value not in self._values.values()

    def remove(self, request: str, subrequest: str) -> None:
        """Undo `add` of a device of the request."""
        if self._concerns(request, subrequest):
            self._n_devices -= 1
            self._values.pop(request, None)
