"""Difference of two objects as JSON: the first field that differs, with both values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from stowplan.objects.meta import Object


class _AbsentField:
    """Stands where a field has no value; equal to no value of JSON."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Any = _AbsentField()


def object_title(value: Object) -> str:
    """What an object is called in a message."""
    kind = type(value).__name__.lower()
    return f"{kind} {getattr(value, 'key', '') or value.name!r}"


def field_change(before: bytes, after: bytes) -> str:
    """The first field that differs between two objects as JSON, with both values."""
    return next(_changes(msgspec.json.decode(before), msgspec.json.decode(after), ""))


def _changes(before: Any, after: Any, path: str) -> Iterator[str]:
    # An empty mapping is left out of the JSON.
    before = {} if before is ABSENT and isinstance(after, dict) else before
    after = {} if after is ABSENT and isinstance(before, dict) else after
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            have, got = before.get(key, ABSENT), after.get(key, ABSENT)
            if have != got:
                plain = key.isidentifier()
                inside = (f"{path}.{key}" if path else key) if plain else f"{path}[{key!r}]"
                yield from _changes(have, got, inside)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (have, got) in enumerate(zip(before, after, strict=True)):
            if have != got:
                yield from _changes(have, got, f"{path}[{place}]")
    else:
        yield f"{path} was {before!r}, is {after!r}"
