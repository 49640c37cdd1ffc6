"""Estimated costs of the calls of Kubernetes' libraries, from the sizes of their arguments.

Source: apiserver v1.36, pkg/cel/library/cost.go (EstimateCallCost).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stowplan.cel.cel_types import CelType
from stowplan.cel.cost_range import ONE, UNKNOWN, CostRange, exactly
from stowplan.cel.libraries.standard_library import REGEX_FACTOR, STRING_FACTOR
from stowplan.cel.values import UINT_MAX

_AUTHORIZATION_COST = 350_000
_FORMAT_PATTERN_MAX = 128
_FORMAT_NAME_MAX = 64
# A requirement for each two characters of a selector, and what a list and a struct cost.
_SELECTOR_REQUIREMENT, _REQUIREMENT_COST = 0.5, 50
_ADDRESS_BYTES = CostRange(4, 16)
_TEXTS = frozenset({"string", "bytes"})
_OF_ONE_STEP = frozenset({
    "net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver",
    "kubernetes.authorization.Authorizer", "kubernetes.authorization.PathCheck",
    "kubernetes.authorization.GroupCheck", "kubernetes.authorization.ResourceCheck",
    "kubernetes.authorization.Decision",
})  # fmt: skip


@dataclass(frozen=True)
class CostArgument:
    """An argument of a call. size: None where nothing is known. literal: of a constant. item: of a
    list, how large its items are."""

    type: CelType
    size: CostRange | None
    literal: Any = None
    item: CostRange | None = None

    @property
    def extent(self) -> CostRange:
        """The size, or any."""
        return UNKNOWN if self.size is None else self.size


@dataclass(frozen=True)
class CallCost:
    """Cost of a call without its arguments. result: size of its result, None: unknown."""

    cost: CostRange
    result: CostRange | None = None


Arguments = list[CostArgument]
"""Of a call; the target of a member function first."""
Estimate = Callable[[Arguments, str], CallCost]


def _one(arguments: Arguments, overload: str) -> CallCost:
    return CallCost(ONE)


def _reading(factor: float = STRING_FACTOR, *, keeps_size: bool = False) -> Estimate:
    def estimate(arguments: Arguments, overload: str) -> CallCost:
        size = arguments[0].extent
        return CallCost(size.scaled(factor), size if keeps_size else None)

    return estimate


def _over_items(arguments: Arguments, overload: str) -> CallCost:
    target = arguments[0]
    if not target.type.parameters:
        return CallCost(target.extent.scaled(STRING_FACTOR))
    each = ONE
    if target.type.parameters[0].name in _TEXTS:
        each = each.plus((target.item or UNKNOWN).scaled(STRING_FACTOR))
    return CallCost(target.extent.times(each))


def _n_replaced(size: int, replaced: int) -> int:
    return min(math.ceil(float(size) / float(replaced)), UINT_MAX)


def _replace(arguments: Arguments, overload: str) -> CallCost:
    size, old, new = (one.extent for one in arguments[:3])
    most, most_kept = _n_replaced(size.high, old.low) if old.low else 0, 0
    if old.low == 0:
        most, most_kept = min(size.high + 1, UINT_MAX), size.high
    elif new.high <= old.low:
        most, most_kept = 0, size.high
    least, least_kept = _n_replaced(size.low, old.high) if old.high else 0, 0
    if old.high == 0:
        least, least_kept = min(size.low + 1, UINT_MAX), size.low
    elif old.high <= new.low:
        least, least_kept = 0, size.low
    made = CostRange(least, most).times(new).plus(CostRange(least_kept, most_kept))
    return CallCost(size.scaled(2 * STRING_FACTOR), made)


def _split(arguments: Arguments, overload: str) -> CallCost:
    size = arguments[0].extent
    most = size.high
    if len(arguments) > 2 and type(arguments[2].literal) is int:
        # A negative limit, which means none, counts as the highest number.
        most = arguments[2].literal % (UINT_MAX + 1)
    return CallCost(size.scaled(2 * STRING_FACTOR), CostRange(0, most))


def _join(arguments: Arguments, overload: str) -> CallCost:
    target = arguments[0]
    n_items = target.extent
    size = n_items.times(target.item or UNKNOWN)
    if len(arguments) > 1:
        n_separators = CostRange(max(n_items.low - 1, 0), max(n_items.high - 1, 0))
        size = size.plus(arguments[1].extent.times(n_separators))
    return CallCost(size.scaled(STRING_FACTOR), size)


def _find(arguments: Arguments, overload: str) -> CallCost:
    size = arguments[0].extent
    pattern = arguments[1].extent.scaled(REGEX_FACTOR)
    cost = size.plus(ONE).scaled(STRING_FACTOR).times(pattern)
    return CallCost(cost, CostRange(0, size.high))


def _ip(arguments: Arguments, overload: str) -> CallCost:
    return CallCost(ONE) if overload == "cidr_ip" else _reading()(arguments, overload)


def _contains_address(arguments: Arguments, overload: str) -> CallCost:
    cost = _ADDRESS_BYTES.plus(_ADDRESS_BYTES).scaled(STRING_FACTOR)
    if overload == "cidr_contains_ip_string":
        cost = cost.plus(arguments[1].extent.scaled(STRING_FACTOR))
    return CallCost(cost)


def _contains_network(arguments: Arguments, overload: str) -> CallCost:
    cost = _ADDRESS_BYTES.plus(_ADDRESS_BYTES).scaled(STRING_FACTOR)
    cost = cost.plus(_ADDRESS_BYTES.scaled(STRING_FACTOR)).plus(ONE)
    if overload == "cidr_contains_cidr_string":
        cost = cost.plus(arguments[1].extent.scaled(STRING_FACTOR))
    return CallCost(cost)


def _validate(arguments: Arguments, overload: str) -> CallCost:
    text = arguments[1].extent.scaled(STRING_FACTOR)
    return CallCost(text.scaled(_FORMAT_PATTERN_MAX * REGEX_FACTOR))


def _selector(arguments: Arguments, overload: str) -> CallCost:
    length = arguments[1].extent
    requirements = length.scaled(_SELECTOR_REQUIREMENT).scaled(_REQUIREMENT_COST)
    return CallCost(exactly(10).plus(length.scaled(STRING_FACTOR)).plus(requirements))


def _whole(argument: CostArgument, default: int) -> int:
    value = argument.literal
    return default if type(value) is not int else max(value, 0)


def _new_list(factor: float, size: CostRange) -> CallCost:
    """A call that makes a list: 1, and 10 for the list."""
    return CallCost(size.scaled(factor).plus(exactly(11)), size)


def _slice(arguments: Arguments, overload: str) -> CallCost:
    start, end = _whole(arguments[1], 0), _whole(arguments[2], arguments[0].extent.high)
    return _new_list(1, exactly((end - start) % (UINT_MAX + 1)))


def _range(arguments: Arguments, overload: str) -> CallCost:
    return _new_list(1, exactly(_whole(arguments[0], UINT_MAX)))


def _flatten(arguments: Arguments, overload: str) -> CallCost:
    depth = 1 if len(arguments) == 1 else _whole(arguments[1], UINT_MAX)
    return _new_list(float(depth), arguments[0].extent)


def _self_compared(index: int, *, sorts: bool) -> Estimate:
    def estimate(arguments: Arguments, overload: str) -> CallCost:
        size = arguments[index].extent
        of_text = sorts and overload.startswith(("list_string", "list_bytes"))
        return _new_list(2.0 + (STRING_FACTOR if of_text else 0.0), size.times(size))

    return estimate


def _of_sets(factor: int) -> Estimate:
    def estimate(arguments: Arguments, overload: str) -> CallCost:
        size = arguments[0].extent.times(arguments[1].extent)
        return CallCost(size.scaled(factor).plus(ONE))

    return estimate


def _check(arguments: Arguments, overload: str) -> CallCost:
    return CallCost(exactly(_AUTHORIZATION_COST))


def equality_cost(left: CostArgument, right: CostArgument) -> CallCost | None:
    """Cost of `==` between values of a library; None for others."""
    if left.type != right.type:
        return None
    if left.type.name in _OF_ONE_STEP:
        return CallCost(ONE)
    if left.type.name == "kubernetes.NamedFormat":
        return CallCost(CostRange(1, _FORMAT_NAME_MAX).scaled(STRING_FACTOR))
    if left.type.name == "kubernetes.URL":
        size = ONE if right.size is None else right.size
        return CallCost(CostRange(1, size.high).scaled(STRING_FACTOR))
    return None


_NOMINAL = """
    serviceAccount path group resource subresource namespace name allowed reason error errored
    masked prefixLength family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast
    isGlobalUnicast format.named sign asInteger isInteger asApproximateFloat isGreaterThan
    isLessThan compareTo add sub major minor patch getScheme getHostname getHost getPort
    getEscapedPath getQuery
""".split()  # noqa: SIM905
CALL_COSTS: dict[str, Estimate] = {
    **dict.fromkeys(_NOMINAL, _one),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _over_items),
    **dict.fromkeys(
        ("url", "jsonpatch.escapeKey", "lowerAscii", "upperAscii", "substring", "trim"),
        _reading(keeps_size=True),
    ),
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _reading()
    ),
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    "check": _check,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "ip": _ip,
    "ip.isCanonical": _reading(2 * STRING_FACTOR),
    "containsIP": _contains_address,
    "containsCIDR": _contains_network,
    "validate": _validate,
    "slice": _slice,
    "lists.range": _range,
    "flatten": _flatten,
    "reverse": lambda arguments, overload: _new_list(1, arguments[0].extent),
    "distinct": _self_compared(0, sorts=False),
    "sort": _self_compared(0, sorts=True),
    "@sortByAssociatedKeys": _self_compared(1, sorts=True),
    "sets.contains": _of_sets(1),
    "sets.intersects": _of_sets(1),
    "sets.equivalent": _of_sets(2),
}
"""By function."""
