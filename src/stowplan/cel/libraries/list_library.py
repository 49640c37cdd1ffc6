"""Functions on lists: Kubernetes' lists library, cel-go's lists (version 3) and sets extensions.

Source: apiserver v1.36, pkg/cel/library/lists.go; cel-go v0.26, ext/lists.go, ext/sets.go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from stowplan.cel.overloads import Library
from stowplan.cel.values import (
    CelDuration,
    EvaluationError,
    Uint,
    checked_int,
    checked_uint,
    compare,
    equal,
    size_of,
)

_ORDERED = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ADDED: tuple[tuple[str, Any], ...] = (
    ("int", 0), ("uint", Uint(0)), ("double", 0.0), ("duration", CelDuration(0)),
)  # fmt: skip
_RANGE_MAX = 1_000_000


def _whole(values: tuple[Any, ...], result: Any) -> int:
    """Cost of reading a list once: its strings count by length."""
    held = values[0]
    if isinstance(held, tuple):
        return sum(size_of(one) if isinstance(one, str | bytes) else 1 for one in held)
    return size_of(held)


def _is_sorted(held: tuple[Any, ...]) -> bool:
    return all(compare(one, two) <= 0 for one, two in pairwise(held))


def _sum_from(zero: Any) -> Callable[[tuple[Any, ...]], Any]:
    def run(held: tuple[Any, ...]) -> Any:
        total = zero
        for one in held:
            if isinstance(one, CelDuration):
                total = CelDuration(checked_int(total.nanos + one.nanos))
            elif isinstance(one, Uint):
                total = checked_uint(int(total) + int(one))
            else:
                total = total + one if isinstance(one, float) else checked_int(total + one)
        return total

    return run


def _extreme(name: str, wanted: int) -> Callable[[tuple[Any, ...]], Any]:
    def run(held: tuple[Any, ...]) -> Any:
        if not held:
            raise EvaluationError(f"{name} called on empty list")
        best = held[0]
        for one in held[1:]:
            if compare(one, best) == wanted:
                best = one
        return best

    return run


def _index_of(held: tuple[Any, ...], item: Any) -> int:
    return next((index for index, one in enumerate(held) if equal(one, item)), -1)


def _last_index_of(held: tuple[Any, ...], item: Any) -> int:
    return max((index for index, one in enumerate(held) if equal(one, item)), default=-1)


def _slice(held: tuple[Any, ...], start: int, end: int) -> tuple[Any, ...]:
    if start < 0 or end < 0:
        text = f"cannot slice({start}, {end}), negative indexes not supported"
        raise EvaluationError(text)
    if start > end:
        text = f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        raise EvaluationError(text)
    if end > len(held):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(held)}")
    return held[start:end]


def _flatten(held: tuple[Any, ...], depth: int = 1) -> tuple[Any, ...]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    made: list[Any] = []
    for one in held:
        if isinstance(one, tuple) and depth > 0:
            made += _flatten(one, depth - 1)
        else:
            made.append(one)
    return tuple(made)


def _distinct(held: tuple[Any, ...]) -> tuple[Any, ...]:
    made: list[Any] = []
    for one in held:
        if not any(equal(one, other) for other in made):
            made.append(one)
    return tuple(made)


def _sort(held: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(held, key=functools.cmp_to_key(compare)))


def _sort_by_keys(held: tuple[Any, ...], keys: tuple[Any, ...]) -> tuple[Any, ...]:
    key_of = functools.cmp_to_key(compare)
    pairs = sorted(zip(keys, held, strict=True), key=lambda pair: key_of(pair[0]))
    return tuple(value for _, value in pairs)


def _range(size: int) -> tuple[int, ...]:
    if size > _RANGE_MAX:
        raise EvaluationError(f"lists.range: size {size} exceeds {_RANGE_MAX}")
    return tuple(range(size))


def _contains(held: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(any(equal(one, two) for two in held) for one in other)


def _intersects(held: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return any(any(equal(one, two) for two in held) for one in other)


def _product(factor: int) -> Callable[[tuple[Any, ...], Any], int]:
    return lambda values, result: 1 + factor * size_of(values[0]) * size_of(values[1])


# A call that makes a list costs 1, and 10 for the list.
_NEW_LIST = 11


def _output(values: tuple[Any, ...], result: Any) -> int:
    return _NEW_LIST + size_of(result)


def _flattened(values: tuple[Any, ...], result: Any) -> int:
    depth = values[1] if len(values) > 1 else 1
    return _NEW_LIST + depth * size_of(values[0])


def _self_compared(index: int) -> Callable[[tuple[Any, ...], Any], int]:
    def cost(values: tuple[Any, ...], result: Any) -> int:
        held = values[index]
        factor = 2.1 if held and isinstance(held[0], str | bytes) else 2.0
        return _NEW_LIST + int(len(held) * len(held) * factor)

    return cost


def list_library() -> Library:
    """Functions on lists and sets."""
    library = Library()
    add = library.add
    for kind in _ORDERED:
        add(f"list_{kind}_is_sorted_bool", f"list({kind})->isSorted() bool", _is_sorted, _whole)
        for name, wanted in (("min", -1), ("max", 1)):
            add(f"list_{kind}_{name}", f"list({kind})->{name}() {kind}", _extreme(name, wanted),
                _whole)  # fmt: skip
    for kind, zero in _ADDED:
        add(f"list_{kind}_sum", f"list({kind})->sum() {kind}", _sum_from(zero), _whole)
    add("list_a_index_of_int", "list(A)->indexOf(A) int", _index_of, _whole)
    add("list_a_last_index_of_int", "list(A)->lastIndexOf(A) int", _last_index_of, _whole)
    add("list_slice", "list(T)->slice(int, int) list(T)", _slice, _output)
    add("list_flatten", "list(list(T))->flatten() list(T)", _flatten, _flattened)
    add("list_flatten_int", "list(dyn)->flatten(int) list(dyn)", _flatten, _flattened)
    add("list_distinct", "list(T)->distinct() list(T)", _distinct, _self_compared(0),
        is_priced_first=True)  # fmt: skip
    add("list_reverse", "list(T)->reverse() list(T)", lambda held: held[::-1], _output)
    for kind in _ORDERED:
        add(f"list_{kind}_sort", f"list({kind})->sort() list({kind})", _sort,
            _self_compared(0))  # fmt: skip
        signature = f"list(T)->@sortByAssociatedKeys(list({kind})) list(T)"
        add(f"list_{kind}_sortByAssociatedKeys", signature, _sort_by_keys,
            _self_compared(1))  # fmt: skip
    add("lists_range", "lists.range(int) list(int)", _range, _output)
    add("list_sets_contains_list", "sets.contains(list(T), list(T)) bool", _contains, _product(1),
        is_priced_first=True)  # fmt: skip
    add("list_sets_equivalent_list", "sets.equivalent(list(T), list(T)) bool",
        lambda one, two: _contains(one, two) and _contains(two, one), _product(2),
        is_priced_first=True)  # fmt: skip
    add("list_sets_intersects_list", "sets.intersects(list(T), list(T)) bool", _intersects,
        _product(1), is_priced_first=True)  # fmt: skip
    return library
