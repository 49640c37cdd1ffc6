"""Values of CEL in Python, their types, equality and order.

int, float, str, bytes, bool and None are themselves; a list is a tuple; the others are below.
A Python bool is never taken for an int, although Python has them equal.

Source: cel-spec, doc/langdef.md (Values, Equality, Ordering); cel-go v0.26, common/types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
UINT_MAX = 2**64 - 1
_DIGITS_MAX = 20
DIGITS_TOO_MANY = 10**_DIGITS_MAX
"""More than any type holds, which has at most `_DIGITS_MAX` digits."""
TEXT_MAX = 10_000_000
"""Differs: longer strings are not made. The original counts what a function reads and not what it
makes, so that one `replace` can make terabytes; ten million characters are more than an evaluation
may read."""


class EvaluationError(Exception):
    """A value that could not be computed; `&&`, `||` and `?:` may absorb it."""


class CostLimitError(Exception):
    """The evaluation cost more than its limit."""

    def __init__(self) -> None:
        """The message is the original's."""
        super().__init__("operation cancelled: actual cost limit exceeded")


NO_OVERLOAD = "no such overload"


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class CelDuration:
    """A duration. nanos: ns."""

    nanos: int


@dataclass(frozen=True, slots=True)
class CelTimestamp:
    """A moment. nanos: ns since the epoch, UTC."""

    nanos: int


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value, such as `int`."""

    name: str


@dataclass(frozen=True, slots=True)
class OptionalValue:
    """An optional value. has_value: False for `optional.none()`."""

    has_value: bool
    value: Any = None


NONE_VALUE = OptionalValue(False)


class SetList(tuple[Any, ...]):
    """A list whose order does not count."""

    __slots__ = ()


class KeyedList(tuple[Any, ...]):
    """A list of maps that the values of some keys distinguish; their order does not count."""

    keys: tuple[str, ...] = ()

    def key_of_item(self, item: Any) -> tuple[Any, ...]:
        """The values of the keys."""
        return tuple(key_of(item.find(key)[1]) for key in self.keys)

    def by_key(self) -> dict[tuple[Any, ...], Any]:
        """The items; of equal keys the last counts."""
        return {self.key_of_item(item): item for item in self}


def with_keys(items: Iterable[Any], keys: tuple[str, ...]) -> KeyedList:
    """A list of maps with keys."""
    made = KeyedList(items)
    made.keys = keys
    return made


def joined_lists(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """`left + right`; items of a set or of a list with keys occur once."""
    if isinstance(left, SetList):
        return SetList([*left, *(one for one in right if not any(equal(one, x) for x in left))])
    if isinstance(left, KeyedList):
        held = left.by_key()
        held.update((left.key_of_item(item), item) for item in right)
        return with_keys(held.values(), left.keys)
    return tuple(left) + tuple(right)


class MapValue:
    """A map. The key of `entries` is `key_of` of the key; its value has key and value."""

    __slots__ = ("entries",)

    def __init__(self, pairs: Iterable[tuple[Any, Any]] = ()) -> None:
        """pairs: keys and values; of equal keys the last counts."""
        self.entries = {key_of(key): (key, value) for key, value in pairs}

    def find(self, key: Any) -> tuple[bool, Any]:
        """(found, value) of a key."""
        entry = self.entries.get(key_of(key))
        return (False, None) if entry is None else (True, entry[1])

    def contains(self, key: Any) -> bool:
        """True for a key of the map."""
        return key_of(key) in self.entries

    def keys(self) -> Iterator[Any]:
        """The keys."""
        return (key for key, _ in self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)


class DefaultMapValue(MapValue):
    """A map in which reading an absent key gives an empty map; `in` and size see its own keys."""

    __slots__ = ()

    def find(self, key: Any) -> tuple[bool, Any]:
        """(True, value) of a key; an empty map for an absent one."""
        found, value = super().find(key)
        return (True, value) if found else (True, EMPTY_MAP)


class ObjectValue(MapValue):
    """A constructed object. name: of its type."""

    __slots__ = ("name",)

    def __init__(self, name: str, pairs: Iterable[tuple[Any, Any]]) -> None:
        """pairs: names of fields and their values."""
        super().__init__(pairs)
        self.name = name


def key_of(key: Any) -> Any:
    """A key for Python's dict: numbers that are equal have the same."""
    if isinstance(key, bool):
        return ("bool", key)
    if isinstance(key, float) and key.is_integer():
        return int(key)
    return key


EMPTY_MAP = MapValue()


@dataclass(frozen=True)
class ValueKind:
    """A type that a library adds.

    equal: of two values of the type.
    """

    name: str
    equal: Callable[[Any, Any], bool]


LIBRARY_KINDS: dict[type, ValueKind] = {}
"""Python class to the type of a library; filled by the libraries at import."""

_KINDS: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    tuple: "list",
    SetList: "list",
    KeyedList: "list",
    MapValue: "map",
    DefaultMapValue: "map",
    type(None): "null_type",
    CelDuration: "google.protobuf.Duration",
    CelTimestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    OptionalValue: "optional_type",
}
NUMBERS = frozenset({"int", "uint", "double"})


def kind_of(value: Any) -> str:
    """The name of the value's type."""
    kind = _KINDS.get(type(value))
    if kind is None and isinstance(value, ObjectValue):
        return value.name
    return LIBRARY_KINDS[type(value)].name if kind is None else kind


def size_of(value: Any) -> int:
    """Size as cost counts it: length of what has one, else 1."""
    if isinstance(value, Sized):
        return len(value)
    if isinstance(value, OptionalValue) and value.has_value:
        return size_of(value.value)
    return 1


def equal(left: Any, right: Any) -> bool:
    """CEL's equality: numbers by value across types, values of different types are unequal."""
    kind, other = kind_of(left), kind_of(right)
    if kind in NUMBERS and other in NUMBERS:
        return bool(left == right)
    if kind != other:
        return False
    if isinstance(left, tuple):
        return len(left) == len(right) and _lists_equal(left, right)
    if isinstance(left, MapValue):
        return _maps_equal(left, right)
    if isinstance(left, OptionalValue):
        if not left.has_value or not right.has_value:
            return left.has_value is right.has_value
        return equal(left.value, right.value)
    library = LIBRARY_KINDS.get(type(left))
    return bool(left == right) if library is None else library.equal(left, right)


def _lists_equal(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    if isinstance(left, SetList):
        return all(any(equal(one, other) for other in left) for one in right)
    if isinstance(left, KeyedList):
        held = left.by_key()
        keys = [left.key_of_item(item) for item in right]
        return all(
            key in held and equal(held[key], item) for key, item in zip(keys, right, strict=True)
        )
    return all(map(equal, left, right))


def _maps_equal(left: MapValue, right: MapValue) -> bool:
    if len(left) != len(right):
        return False
    for key, (_, value) in left.entries.items():
        entry = right.entries.get(key)
        if entry is None or not equal(value, entry[1]):
            return False
    return True


_ORDERED = frozenset({
    "bool", "int", "uint", "double", "string", "bytes", "google.protobuf.Duration",
    "google.protobuf.Timestamp",
})  # fmt: skip


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1; raises EvaluationError for values without an order."""
    kind, other = kind_of(left), kind_of(right)
    if kind not in _ORDERED or (kind != other and not {kind, other} <= NUMBERS):
        raise EvaluationError(NO_OVERLOAD)
    if isinstance(left, CelDuration | CelTimestamp):
        left, right = left.nanos, right.nanos
    if any(isinstance(value, float) and math.isnan(value) for value in (left, right)):
        raise EvaluationError("NaN values cannot be ordered")
    return int(left > right) - int(left < right)


def read_digits(digits: str) -> int:
    """The number of decimal digits. Every number that no type holds is `DIGITS_TOO_MANY`: Python
    refuses to read more than 4300 digits."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= _DIGITS_MAX else DIGITS_TOO_MANY


def check_text_length(length: int) -> None:
    """Raises EvaluationError if a function would make a string of more than `TEXT_MAX`."""
    if length > TEXT_MAX:
        raise EvaluationError(f"string of {length} characters exceeds the limit of {TEXT_MAX}")


def checked_int(number: int) -> int:
    """The number, if an int holds it; raises EvaluationError."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise EvaluationError("integer overflow")


def checked_uint(number: int) -> Uint:
    """The number, if a uint holds it; raises EvaluationError."""
    if 0 <= number <= UINT_MAX:
        return Uint(number)
    raise EvaluationError("unsigned integer overflow")
