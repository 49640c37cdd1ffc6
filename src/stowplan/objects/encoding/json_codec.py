"""API JSON to values: typed, unknown fields ignored, wrong types an error that names the path."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>.*)`)?$", re.DOTALL)


class DecodeError(ValueError):
    """A document that is not what it should be: says where, what was wanted and what was got."""

    def __init__(self, what: str, path: str = "$") -> None:
        """what: the complaint ("Expected `str`, got `int`"); path: where, from the root `$`."""
        super().__init__(f"{path}: {what}")
        self.what = what
        self.path = path


def decode(data: bytes | str, kind: type[T]) -> T:
    """The value of type `kind` that the JSON text `data` holds; raises DecodeError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        # A null may stand wherever the API allows a field to be absent. It is rare, so the
        # common path does not pay for it.
        return convert(untyped(data), kind)
    except msgspec.DecodeError as error:
        raise DecodeError(str(error)) from None


def untyped(data: bytes | str) -> Any:
    """The JSON text as dicts, lists and scalars; raises DecodeError."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise DecodeError(str(error)) from None


def convert(tree: Any, kind: type[T], path: str = "$") -> T:
    """The value of type `kind` that a tree of dicts and lists holds; raises DecodeError.

    A null counts as absent, as in the API. path: where the tree stands, for the error.
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
    """`value` as compact API JSON; absent fields are left out."""
    return msgspec.json.encode(value)
