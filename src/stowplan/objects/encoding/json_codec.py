"""API JSON to typed values: unknown fields are ignored, wrong types are errors with a path."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>.*)`)?$", re.DOTALL)


class DecodeError(ValueError):
    """A document that cannot be decoded; the message has path, expected and actual type."""

    def __init__(self, what: str, path: str = "$") -> None:
        """what: the error ("Expected `str`, got `int`"); path: its location, from the root `$`."""
        super().__init__(f"{path}: {what}")
        self.what = what
        self.path = path


def decode(data: bytes | str, kind: type[T]) -> T:
    """Decode JSON as a value of type `kind`; raises DecodeError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        # Null is allowed wherever a field may be absent. It is rare, so the common path does not
        # check for it.
        return convert(untyped(data), kind)
    except msgspec.DecodeError as error:
        raise DecodeError(str(error)) from None


def untyped(data: bytes | str) -> Any:
    """Decode JSON as dicts, lists and scalars; raises DecodeError."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise DecodeError(str(error)) from None


def convert(tree: Any, kind: type[T], path: str = "$") -> T:
    """Convert a tree of dicts and lists to a value of type `kind`; raises DecodeError.

    Null is the same as absent, as in the API. path: location of the tree, for errors.
    """
    try:
        return msgspec.convert(without_nulls(tree), type=kind)
    except msgspec.ValidationError as error:
        found = _AT.match(str(error))
        where = (found["path"] if found else None) or "$"
        what = found["what"] if found else str(error)
        raise DecodeError(what, path + where[1:]) from None


def without_nulls(tree: Any) -> Any:
    """A copy of `tree` without the dict entries whose value is null."""
    if isinstance(tree, dict):
        return {k: without_nulls(v) for k, v in tree.items() if v is not None}
    if isinstance(tree, list):
        return [without_nulls(v) for v in tree]
    return tree


def encode(value: Any) -> bytes:
    """Encode `value` as compact API JSON; absent fields are left out."""
    return msgspec.json.encode(value)
