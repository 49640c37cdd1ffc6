"""Amounts of quota: integers (milli-CPU, units) between int64's limits, the highest is unlimited.

Source: Kueue, pkg/resources/amount.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.objects.quantity import (
    INT64_MAX,
    INT64_MIN,
    NANOS_PER_MILLI,
    NANOS_PER_UNIT,
    OutOfRangeError,
    Quantity,
    amount,
    nanos,
)

UNLIMITED = INT64_MAX
FlavorResource = tuple[str, str]
"""(flavor, resource)"""
Amounts = Mapping[FlavorResource, int]

_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def plus(a: int, b: int) -> int:
    """The sum; unlimited plus anything is unlimited."""
    if a == UNLIMITED or b == UNLIMITED:
        return UNLIMITED
    return max(INT64_MIN, min(UNLIMITED, a + b))


def minus(a: int, b: int) -> int:
    """The difference; unlimited less unlimited is 0, anything less unlimited the minimum."""
    if a == UNLIMITED:
        return 0 if b == UNLIMITED else UNLIMITED
    if b == UNLIMITED:
        return INT64_MIN
    return max(INT64_MIN, min(UNLIMITED, a - b))


def quota_amount(resource: str, quantity: Quantity) -> int:
    """A quota in base units; unlimited from 2^63-1 units (CPU: a thousandth) on."""
    try:
        exactly = nanos(quantity)
    except OutOfRangeError:
        return UNLIMITED if not str(quantity).startswith("-") else amount(resource, quantity)
    if resource != "cpu":
        return min(-(-exactly // NANOS_PER_UNIT), UNLIMITED)
    if exactly >= INT64_MAX // 1000 * NANOS_PER_UNIT:
        return UNLIMITED
    return -(-exactly // NANOS_PER_MILLI)


def request_amount(resource: str, quantity: Quantity) -> int:
    """A request in base units, at most int64's maximum."""
    try:
        exactly = nanos(quantity)
    except OutOfRangeError:
        return amount(resource, quantity) if str(quantity).startswith("-") else INT64_MAX
    return min(-(-exactly // (NANOS_PER_MILLI if resource == "cpu" else NANOS_PER_UNIT)), INT64_MAX)


def name_hash(name: str) -> int:
    """64-bit FNV-1a hash of a resource name."""
    found = _FNV_OFFSET
    for byte in name.encode():
        found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return found


def in_request_order(names: Iterable[str]) -> list[str]:
    """Resource names in the order in which Kueue walks requests: by their hash."""
    return sorted(names, key=name_hash)
