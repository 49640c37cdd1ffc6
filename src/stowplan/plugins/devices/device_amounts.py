"""Amounts of device capacities: exact, comparable, and rounded by request policies.

Source: dynamic-resource-allocation v1.36, structured/internal/incubating/consumable_capacity.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from stowplan.objects.devices.device import CapacityRequestPolicy, DeviceCapacity
from stowplan.objects.devices.device_claim import CapacityRequirements
from stowplan.objects.quantity import Exact, Quantity, QuantityError, exact, value

NANOS = 10**9
_SUFFIX = re.compile(r"(i|[eE][+-]?[0-9]+)$")


@dataclass(frozen=True, slots=True)
class DeviceAmount:
    """An amount. nanos: billionths. text: canonical. form: as the original represents it, which
    decides whether a request is the policy's default."""

    nanos: int
    text: str
    form: tuple[Exact, str]

    @property
    def units(self) -> int:
        """Whole units, rounded up."""
        return value(self.text)


@lru_cache(maxsize=1 << 14, typed=True)
def amount_of(quantity: Quantity) -> DeviceAmount:
    """The amount of a quantity; 0 for one that is invalid, which the API refuses."""
    # Imported here: without devices the schemas are not needed, and they are large.
    from stowplan.apis.schema.canonical_quantity import InvalidQuantity, canonical_quantity

    try:
        held = exact(quantity)
        text = canonical_quantity(quantity)
    except (QuantityError, InvalidQuantity):
        return amount_of(0)
    shift = held.exponent + 9
    nanos = held.unscaled * 10**shift if shift >= 0 else held.unscaled // 10**-shift
    suffix = _SUFFIX.search(str(quantity))
    return DeviceAmount(nanos, text, (held, suffix[1][0].lower() if suffix else ""))


@lru_cache(maxsize=1 << 12)
def _whole(units: int) -> DeviceAmount:
    """An amount of whole units in binary format."""
    text = amount_of(f"{units // 1024}Ki").text if units % 1024 == 0 else str(units)
    return DeviceAmount(units * NANOS, text, (Exact(units, 0, False), "i"))


def quantity_of(nanos: int) -> str:
    """Billionths as a quantity."""
    if nanos % NANOS:
        for suffix, size in (("m", 10**6), ("u", 10**3)):
            if nanos % size == 0:
                return f"{nanos // size}{suffix}"
        return f"{nanos}n"
    units = nanos // NANOS
    for suffix, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if units and units % size == 0:
            return f"{units // size}{suffix}"
    return str(units)


def consumed_amount(request: Quantity | None, capacity: DeviceCapacity) -> DeviceAmount:
    """What an allocation takes of a capacity: the request rounded up by the policy; without one
    the policy's default, else all."""
    policy = capacity.request_policy
    if request is None:
        default = None if policy is None else policy.default
        return amount_of(capacity.value if default is None else default)
    asked = amount_of(request)
    if policy is None:
        return asked
    limits = policy.valid_range
    if limits is not None and limits.min is not None:
        least = amount_of(limits.min)
        if asked.nanos < least.nanos:
            return least
        if limits.step is None:
            return asked
        step, base = amount_of(limits.step).units, least.units
        return _whole(base - (base - asked.units) // step * step if step else asked.units)
    for one in policy.valid_values:
        if asked.nanos <= amount_of(one).nanos:
            return amount_of(one)
    return asked


def _is_violated(asked: DeviceAmount, policy: CapacityRequestPolicy | None) -> bool:
    """True for an amount that the policy does not allow; its default is always allowed."""
    if policy is None:
        return False
    if policy.default is not None and asked.form == amount_of(policy.default).form:
        return False
    limits = policy.valid_range
    if limits is not None:
        if limits.max is not None and asked.nanos > amount_of(limits.max).nanos:
            return True
        if limits.step is None:
            return False
        least = amount_of(limits.min).units if limits.min is not None else 0
        step = amount_of(limits.step).units
        return step != 0 and (asked.units - least) % step != 0
    values = policy.valid_values
    return bool(values) and all(asked.nanos != amount_of(one).nanos for one in values)


def requested_of(requirements: CapacityRequirements | None) -> Mapping[str, Quantity]:
    """Requested amounts by name of the capacity."""
    return {} if requirements is None else requirements.requests


def fits_capacity(
    requests: Mapping[str, Quantity],
    capacity: Mapping[str, DeviceCapacity],
    *used: Mapping[str, int],
) -> bool:
    """True where a device has what is requested beside what is in use.

    used: billionths by name, of each kind of use.
    """
    if any(name not in capacity for name in requests):
        return False
    for name, one in capacity.items():
        asked = consumed_amount(requests.get(name), one)
        if _is_violated(asked, one.request_policy):
            return False
        total = asked.nanos + sum(held.get(name, 0) for held in used)
        if total > amount_of(one.value).nanos:
            return False
    return True
