"""Decoders of single values: each turns what JSON gave into its canonical form or raises.

A decoder is called `decode(value, at, sink)`. `at` is where the value stands, a chain
`(outer chain, step, owner)`: the step is a field's name, an index or `(key,)` of a map; the owner
is the Go name of the type that has the field, or "". `sink` collects unknown fields.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any

from stowplan.cluster.schema import quantities, times

At = tuple[Any, Any, str] | None
Decode = Callable[[Any, At, Any], Any]


class WrongType(ValueError):
    """A value that the type cannot hold; its text is what Go answers."""


def path_of(at: At) -> str:
    """`spec.containers[0].image`, for texts about unknown fields."""
    steps: list[str] = []
    while at is not None:
        outer, step, _ = at
        if isinstance(step, int):
            steps.append(f"[{step}]")
        else:
            steps.append("." + (step if isinstance(step, str) else step[0]))
        at = outer
    return "".join(reversed(steps)).lstrip(".")


def mismatch(value: Any, at: At, go_type: str) -> WrongType:
    """The error of a value of the wrong JSON type."""
    owner, names = "", []
    while at is not None:
        outer, step, of = at
        if isinstance(step, str):
            names.append(step)
            owner = owner or of
        at = outer
    where = f"Go struct field {owner}.{'.'.join(reversed(names))}" if owner else "Go value"
    return WrongType(
        f"json: cannot unmarshal {_kind(value, go_type)} into {where} of type {go_type}"
    )


def _kind(value: Any, go_type: str) -> str:
    if value is True or value is False:
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    if isinstance(value, dict):
        return "object"
    # Go shows the literal only where it wanted a number and this one did not fit.
    return f"number {value}" if go_type.startswith(("int", "uint", "float")) else "number"


def text_decoder(go_type: str) -> Decode:
    """A string, or a named type of strings."""

    def decode(value: Any, at: At, sink: Any) -> Any:
        if type(value) is str:
            return value
        raise mismatch(value, at, go_type)

    return decode


def flag(value: Any, at: At, sink: Any) -> Any:
    """A bool."""
    if value is True or value is False:
        return value
    raise mismatch(value, at, "bool")


def integer_decoder(bits: int) -> Decode:
    """An int32 or int64."""
    high = 2 ** (bits - 1)
    go_type = f"int{bits}"

    def decode(value: Any, at: At, sink: Any) -> Any:
        if type(value) is int and -high <= value < high:
            return value
        raise mismatch(value, at, go_type)

    return decode


def number(value: Any, at: At, sink: Any) -> Any:
    """A float64; whole ones come back as integers, as Go prints them."""
    if type(value) is int:
        return value
    if type(value) is float:
        return math.trunc(value) if value.is_integer() and abs(value) < 1e21 else value
    raise mismatch(value, at, "float64")


def anything(value: Any, at: At, sink: Any) -> Any:
    """Free JSON, kept as it came."""
    return value


def _quantity(value: Any, rounded: bool) -> str:
    if type(value) is str or type(value) is int or type(value) is float:
        try:
            return quantities.canonical(value, rounded)
        except quantities.NotAQuantity as error:
            raise WrongType(str(error)) from None
    raise WrongType(quantities.WRONG_FORM)


def quantity(value: Any, at: At, sink: Any) -> Any:
    """A quantity."""
    return _quantity(value, False)


def rounded_quantity(value: Any, at: At, sink: Any) -> Any:
    """A quantity in a list of resources: rounded up to thousandths."""
    return _quantity(value, True)


def time(value: Any, at: At, sink: Any) -> Any:
    """A time to the second."""
    if type(value) is not str:
        raise WrongType(f"json: cannot unmarshal {_kind(value, '')} into Go value of type string")
    try:
        return times.seconds(value)
    except times.NotATime as error:
        raise WrongType(str(error)) from None


def micro_time(value: Any, at: At, sink: Any) -> Any:
    """A time to the microsecond."""
    if type(value) is not str:
        raise WrongType(f"json: cannot unmarshal {_kind(value, '')} into Go value of type string")
    try:
        return times.micros(value)
    except times.NotATime as error:
        raise WrongType(str(error)) from None


def int_or_string(value: Any, at: At, sink: Any) -> Any:
    """A whole number or a text."""
    if type(value) is str:
        return value
    if type(value) is int and -(2**31) <= value < 2**31:
        return value
    raise WrongType(f"json: cannot unmarshal {_kind(value, 'int32')} into Go value of type int32")


def octets(value: Any, at: At, sink: Any) -> Any:
    """Bytes, written in base64."""
    if type(value) is not str:
        raise mismatch(value, at, "[]uint8")
    kept = value.replace("\n", "").replace("\r", "")
    try:
        return base64.b64encode(base64.b64decode(kept, validate=True)).decode("ascii")
    except (binascii.Error, ValueError):
        raise WrongType(f"illegal base64 data at input byte {_bad_octet(kept)}") from None


_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def _bad_octet(text: str) -> int:
    """The index that Go's decoder names in a text that is not base64."""
    for at, character in enumerate(text):
        if character not in _BASE64:
            return at
    # Too few digits in the last group of four: Go names the beginning of what is missing.
    return len(text)
