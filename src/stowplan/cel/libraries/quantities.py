"""Quantities in CEL: `quantity("1.5Gi")` and what it answers.

Source: apiserver v1.36, pkg/cel/library/quantity.go; apimachinery, pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from stowplan.cel.libraries.standard_library import traversal
from stowplan.cel.overloads import Library
from stowplan.cel.values import INT_MAX, INT_MIN, LIBRARY_KINDS, EvaluationError, ValueKind
from stowplan.objects.quantity import Quantity, QuantityError, exact

QUANTITY_TYPE = "kubernetes.Quantity"
# The original checks the form first; suffixes of the right letters in the wrong order come later.
# Possessive: digits that two parts may take are divided in one way only.
_FORM = re.compile(r"[+-]?[0-9.]++[eEinumkKMGTP]*+[-+]?[0-9]*+")
_WRONG_FORM = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_WRONG_SUFFIX = "unable to parse quantity's suffix"
_NANOS = 10**9


@dataclass(frozen=True, slots=True)
class CelQuantity:
    """An exact amount. nanos: billionths."""

    nanos: int

    def compare(self, other: CelQuantity) -> int:
        """-1, 0 or 1."""
        return (self.nanos > other.nanos) - (self.nanos < other.nanos)


def quantity_of(amount: Quantity) -> CelQuantity:
    """The value of a quantity in an object; raises EvaluationError with the original's text."""
    try:
        held = exact(amount)
    except QuantityError:
        is_form = isinstance(amount, str) and _FORM.fullmatch(amount) is not None
        text = _WRONG_SUFFIX if is_form and _has_one_point(str(amount)) else _WRONG_FORM
        raise EvaluationError(text) from None
    return CelQuantity(int(Fraction(held.unscaled) * Fraction(10) ** (held.exponent + 9)))


def _has_one_point(text: str) -> bool:
    return text.count(".") <= 1 and any(letter.isdigit() for letter in text)


def _is_quantity(text: str) -> bool:
    try:
        quantity_of(text)
    except EvaluationError:
        return False
    return True


def _is_integer(held: CelQuantity) -> bool:
    return held.nanos % _NANOS == 0 and INT_MIN <= held.nanos // _NANOS <= INT_MAX


def _as_integer(held: CelQuantity) -> int:
    if not _is_integer(held):
        raise EvaluationError("cannot convert value to integer")
    return held.nanos // _NANOS


LIBRARY_KINDS[CelQuantity] = ValueKind(QUANTITY_TYPE, lambda one, two: bool(one == two))


def quantity_library() -> Library:
    """`quantity`, `isQuantity` and what quantities answer."""
    library = Library()
    add = library.add
    kind = QUANTITY_TYPE
    add("string_to_quantity", f"quantity(string) {kind}", quantity_of, traversal())
    add("is_quantity_string", "isQuantity(string) bool", _is_quantity, traversal())
    add("quantity_sign", f"sign({kind}) int", lambda held: held.compare(CelQuantity(0)))
    add("quantity_is_greater_than", f"{kind}->isGreaterThan({kind}) bool",
        lambda one, two: one.compare(two) > 0)  # fmt: skip
    add("quantity_is_less_than", f"{kind}->isLessThan({kind}) bool",
        lambda one, two: one.compare(two) < 0)  # fmt: skip
    add("quantity_compare_to", f"{kind}->compareTo({kind}) int",
        lambda one, two: one.compare(two))  # fmt: skip
    add("quantity_get_float", f"{kind}->asApproximateFloat() double",
        lambda held: held.nanos / _NANOS)  # fmt: skip
    add("quantity_get_int", f"{kind}->asInteger() int", _as_integer)
    add("quantity_is_integer", f"{kind}->isInteger() bool", _is_integer)
    for name, sign in (("add", 1), ("sub", -1)):

        def plus(one: CelQuantity, two: CelQuantity, sign: int = sign) -> CelQuantity:
            return CelQuantity(one.nanos + sign * two.nanos)

        def plus_int(one: CelQuantity, two: int, sign: int = sign) -> CelQuantity:
            return CelQuantity(one.nanos + sign * two * _NANOS)

        add(f"quantity_{name}", f"{kind}->{name}({kind}) {kind}", plus)
        add(f"quantity_{name}_int", f"{kind}->{name}(int) {kind}", plus_int)
    return library
