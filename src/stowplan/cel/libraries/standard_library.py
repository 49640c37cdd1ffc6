"""The standard functions and operators of CEL, optional values and bindings.

Source: cel-spec, doc/langdef.md (List of Standard Definitions); cel-go v0.26, common/stdlib,
cel/library.go; costs: interpreter/runtimecost.go.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import re2

from stowplan.cel.libraries import moments
from stowplan.cel.overloads import Library
from stowplan.cel.pattern_errors import go_pattern_error
from stowplan.cel.values import (
    INT_MAX,
    INT_MIN,
    LIBRARY_KINDS,
    NONE_VALUE,
    UINT_MAX,
    CelDuration,
    CelTimestamp,
    EvaluationError,
    MapValue,
    OptionalValue,
    TypeValue,
    Uint,
    checked_int,
    checked_uint,
    compare,
    equal,
    joined_lists,
    key_of,
    kind_of,
    read_digits,
    size_of,
)

STRING_FACTOR = 0.1
REGEX_FACTOR = 0.25
# Exponents from this one on are written.
_EXPONENT_MIN = 6


def traversal(index: int = 0, factor: float = STRING_FACTOR) -> Callable[..., int]:
    """Cost of reading an argument once."""
    return lambda values, result: math.ceil(size_of(values[index]) * factor)


def _smaller(values: tuple[Any, ...], result: Any) -> int:
    return math.ceil(min(map(size_of, values)) * STRING_FACTOR)


def _equality_cost(values: tuple[Any, ...], result: Any) -> int:
    return 1 if type(values[0]) in LIBRARY_KINDS else _smaller(values, result)


def _sum_cost(values: tuple[Any, ...], result: Any) -> int:
    return math.ceil(sum(map(size_of, values)) * STRING_FACTOR)


def regex_cost(values: tuple[Any, ...], result: Any) -> int:
    """Cost of a search: length of the text times length of the expression."""
    text = math.ceil((1.0 + size_of(values[0])) * STRING_FACTOR)
    return text * math.ceil(size_of(values[1]) * REGEX_FACTOR)


def _substring_cost(values: tuple[Any, ...], result: Any) -> int:
    found = [math.ceil(size_of(value) * STRING_FACTOR) for value in values]
    return found[0] * found[1]


def regular_expression(text: str) -> Any:
    """A compiled expression; raises EvaluationError."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        message = str(error.args[0], "utf-8", "replace")
        text = go_pattern_error(message, text)
        raise EvaluationError(f"error parsing regexp: {text}") from None


def _matches(text: str, pattern: str) -> bool:
    return regular_expression(pattern).search(text) is not None


def _divided(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise EvaluationError("integer overflow")
    return left - right * _divided(left, right)


def _float_divided(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _add_arithmetic(library: Library) -> None:
    operations = (
        ("_+_", "add", operator.add, operator.add),
        ("_-_", "subtract", operator.sub, operator.sub),
        ("_*_", "multiply", operator.mul, operator.mul),
        ("_/_", "divide", _divided, _float_divided),
    )
    for name, word, of_int, of_float in operations:

        def run_int(a: int, b: int, of: Any = of_int) -> int:
            return checked_int(of(a, b))

        def run_uint(a: int, b: int, of: Any = of_int) -> Uint:
            return checked_uint(of(int(a), int(b)))

        library.add(f"{word}_int64", f"{name}(int, int) int", run_int)
        library.add(f"{word}_uint64", f"{name}(uint, uint) uint", run_uint)
        library.add(f"{word}_double", f"{name}(double, double) double", of_float)
    library.add("modulo_int64", "_%_(int, int) int", _remainder)
    library.add("modulo_uint64", "_%_(uint, uint) uint", lambda a, b: Uint(_remainder(a, b)))
    library.add("negate_int64", "-_(int) int", lambda a: checked_int(-a))
    library.add("negate_double", "-_(double) double", operator.neg)
    add = "_+_({0}, {0}) {0}"
    library.add("add_string", add.format("string"), operator.add, _sum_cost)
    library.add("add_bytes", add.format("bytes"), operator.add, _sum_cost)
    library.add("add_list", add.format("list(A)"), joined_lists)
    moments.add_arithmetic(library)


def _add_comparisons(library: Library) -> None:
    tests: tuple[tuple[str, str, Callable[[int], bool]], ...] = (
        ("_<_", "less", lambda order: order < 0),
        ("_<=_", "less_equals", lambda order: order <= 0),
        ("_>_", "greater", lambda order: order > 0),
        ("_>=_", "greater_equals", lambda order: order >= 0),
    )
    numbers = ("int", "uint", "double")
    pairs = [(one, one) for one in ("bool", "string", "bytes", "duration", "timestamp")]
    pairs += [(one, other) for one in numbers for other in numbers]
    for name, word, test in tests:

        def run(a: Any, b: Any, test: Any = test) -> bool:
            return bool(test(compare(a, b)))

        for one, other in pairs:
            cost = _smaller if one in ("string", "bytes") else None
            library.add(f"{word}_{one}_{other}", f"{name}({one}, {other}) bool", run, cost)


def _map_contains(key: Any, container: MapValue) -> bool:
    return container.contains(key)


def _add_operators(library: Library) -> None:
    library.add("conditional", "_?_:_(bool, A, A) A", operator.is_)
    library.add("logical_and", "_&&_(bool, bool) bool", operator.and_)
    library.add("logical_or", "_||_(bool, bool) bool", operator.or_)
    library.add("logical_not", "!_(bool) bool", operator.not_)
    library.add("not_strictly_false", "@not_strictly_false(bool) bool", operator.is_)
    library.add("equals", "_==_(A, A) bool", equal, _equality_cost)
    library.add("not_equals", "_!=_(A, A) bool", lambda a, b: not equal(a, b), _smaller)
    library.add(
        "in_list",
        "@in(A, list(A)) bool",
        lambda a, held: any(equal(a, one) for one in held),
        lambda values, result: size_of(values[1]),
    )
    library.add("in_map", "@in(A, map(A, B)) bool", _map_contains)
    library.add("index_list", "_[_](list(A), int) A", operator.getitem)
    library.add("index_map", "_[_](map(A, B), A) B", operator.getitem)
    library.add(
        "optional_list_index_int", "_[_](optional_type(list(V)), int) optional_type(V)", min
    )
    library.add(
        "optional_map_index_value", "_[_](optional_type(map(K, V)), K) optional_type(V)", min
    )
    library.add("list_optindex_optional_int", "_[?_](list(V), int) optional_type(V)", min)
    library.add(
        "optional_list_optindex", "_[?_](optional_type(list(V)), int) optional_type(V)", min
    )
    library.add("map_optindex_optional_value", "_[?_](map(K, V), K) optional_type(V)", min)
    library.add("optional_map_optindex", "_[?_](optional_type(map(K, V)), K) optional_type(V)", min)


def _to_int(value: float) -> int:
    if math.isnan(value) or not INT_MIN < value < INT_MAX:
        raise EvaluationError("integer overflow")
    return int(value)


def _to_uint(value: float) -> Uint:
    if math.isnan(value) or not 0 <= value < UINT_MAX:
        raise EvaluationError("unsigned integer overflow")
    return Uint(int(value))


def _parsed(text: str, kind: str) -> Any:
    """A number in a string; raises EvaluationError as Go's strconv."""
    body = text[1:] if kind == "int" and text[:1] in ("+", "-") else text
    if kind == "double":
        try:
            if "_" not in text and text == text.strip():
                return float(text)
        except ValueError:
            pass
    elif body.isascii() and body.isdigit():
        number = read_digits(body)
        try:
            if kind == "uint":
                return checked_uint(number)
            return checked_int(-number if text.startswith("-") else number)
        except EvaluationError:
            pass
    raise EvaluationError(f"type conversion error from 'string' to '{kind}'")


def format_double(value: float) -> str:
    """A double as the original shows it: the shortest digits, an exponent from 1e+06 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, point = _digits(value)
    exponent = point - 1
    if not -4 <= exponent < _EXPONENT_MIN:
        mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
        return f"{sign}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    return sign + _without_exponent(digits, point)


def plain_double(value: float) -> str:
    """A finite double with its shortest digits and without exponent."""
    sign, digits, point = _digits(value)
    return sign + _without_exponent(digits, point)


def _digits(value: float) -> tuple[str, str, int]:
    """(sign, shortest digits, place of the point in them)."""
    sign, held, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, held))
    stripped = digits.rstrip("0") or "0"
    point = len(digits) + exponent
    leading = len(stripped) - len(stripped.lstrip("0")) if stripped != "0" else 0
    point = 1 if stripped == "0" else point - leading
    return "-" if sign else "", stripped[leading:], point


def _without_exponent(digits: str, point: int) -> str:
    if point <= 0:
        return f"0.{'0' * -point}{digits}"
    if point >= len(digits):
        return digits.ljust(point, "0")
    return f"{digits[:point]}.{digits[point:]}"


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        text = "invalid UTF-8 in bytes, cannot convert to string"
        raise EvaluationError(text) from None


def _to_bool(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise EvaluationError("type conversion error from 'string' to 'bool'")


def _same(value: Any) -> Any:
    return value


def _add_conversions(library: Library) -> None:
    add = library.add
    for kind in ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"):
        add(f"{kind}_to_{kind}", f"{kind}({kind}) {kind}", _same)
    add("string_to_bool", "bool(string) bool", _to_bool)
    add("string_to_bytes", "bytes(string) bytes", str.encode, traversal())
    add("int64_to_double", "double(int) double", float)
    add("uint64_to_double", "double(uint) double", float)
    add("string_to_double", "double(string) double", lambda text: _parsed(text, "double"))
    add("uint64_to_int64", "int(uint) int", lambda value: checked_int(int(value)))
    add("double_to_int64", "int(double) int", _to_int)
    add("string_to_int64", "int(string) int", lambda text: _parsed(text, "int"))
    add("int64_to_uint64", "uint(int) uint", checked_uint)
    add("double_to_uint64", "uint(double) uint", _to_uint)
    add("string_to_uint64", "uint(string) uint", lambda text: _parsed(text, "uint"))
    add("bool_to_string", "string(bool) string", lambda value: "true" if value else "false")
    add("int64_to_string", "string(int) string", str)
    add("uint64_to_string", "string(uint) string", lambda value: str(int(value)))
    add("double_to_string", "string(double) string", format_double)
    add("bytes_to_string", "string(bytes) string", _decoded, traversal())
    add("to_dyn", "dyn(A) dyn", _same)
    add("type", "type(A) type(A)", lambda value: TypeValue(kind_of(value)))
    moments.add_conversions(library)


def _add_strings(library: Library) -> None:
    add = library.add
    for kind in ("string", "bytes", "list(A)", "map(A, B)"):
        word = kind.partition("(")[0]
        add(f"size_{word}", f"size({kind}) int", len)
        add(f"{word}_size", f"{kind}->size() int", len)
    add("contains_string", "string->contains(string) bool", operator.contains, _substring_cost)
    add("starts_with_string", "string->startsWith(string) bool", str.startswith, traversal())
    add("ends_with_string", "string->endsWith(string) bool", str.endswith, traversal())
    add("matches", "matches(string, string) bool", _matches, regex_cost)
    add("matches_string", "string->matches(string) bool", _matches, regex_cost)


def _is_zero(value: Any) -> bool:
    if isinstance(value, OptionalValue):
        return not value.has_value
    if isinstance(value, tuple | MapValue | str | bytes):
        return len(value) == 0
    if isinstance(value, CelDuration | CelTimestamp):
        return value.nanos == 0
    return value is None or (isinstance(value, bool | int | float) and value == 0)


def _value_of(held: OptionalValue) -> Any:
    if not held.has_value:
        raise EvaluationError("optional.none() dereference")
    return held.value


def _unwrapped(held: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.value for one in held if not isinstance(one, OptionalValue) or one.has_value)


def _inserted(held: MapValue, key: Any, value: Any) -> MapValue:
    if held.contains(key):
        raise EvaluationError(f"insert failed: key {key} already exists")
    made = MapValue()
    made.entries = {**held.entries, key_of(key): (key, value)}
    return made


def _merged(held: MapValue, other: MapValue) -> MapValue:
    for key, value in other.entries.values():
        held = _inserted(held, key, value)
    return held


def _add_optional(library: Library) -> None:
    add = library.add
    add("optional_of", "optional.of(V) optional_type(V)", lambda value: OptionalValue(True, value))
    add(
        "optional_ofNonZeroValue",
        "optional.ofNonZeroValue(V) optional_type(V)",
        lambda value: NONE_VALUE if _is_zero(value) else OptionalValue(True, value),
    )
    add("optional_none", "optional.none() optional_type(V)", lambda: NONE_VALUE)
    add("optional_value", "optional_type(V)->value() V", _value_of)
    add("optional_hasValue", "optional_type(V)->hasValue() bool", lambda held: held.has_value)
    add("optional_or", "optional_type(V)->or(optional_type(V)) optional_type(V)", min)
    add("optional_orValue", "optional_type(V)->orValue(V) V", min)
    add("optional_unwrap", "optional.unwrap(list(optional_type(V))) list(V)", _unwrapped)
    add("optional_unwrapOpt", "list(optional_type(V))->unwrapOpt() list(V)", _unwrapped)
    add("@mapInsert_map_key_value", "cel.@mapInsert(map(K, V), K, V) map(K, V)", _inserted)
    add("@mapInsert_map_map", "cel.@mapInsert(map(K, V), map(K, V)) map(K, V)", _merged)


def standard_library() -> Library:
    """The functions every environment has."""
    library = Library()
    _add_operators(library)
    _add_arithmetic(library)
    _add_comparisons(library)
    _add_conversions(library)
    _add_strings(library)
    _add_optional(library)
    moments.add_accessors(library)
    return library
