"""Types as server-side apply sees them: which lists and maps are merged, and by which keys.

Source: structured-merge-diff v6, schema/elements.go; kube-openapi schemaconv.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

NUMERIC, STRING, BOOLEAN, UNTYPED = "numeric", "string", "boolean", "untyped"


@dataclass(slots=True, eq=False)
class MapType:
    """A struct or a map. fields: of a struct. element: of other keys; None: there are none.

    atomic: owned as a whole.
    """

    fields: Mapping[str, FieldType] = field(default_factory=dict)
    element: FieldType | None = None
    atomic: bool = False

    def of_key(self, key: str) -> FieldType | None:
        """The type of the value of a key; None: the key is not declared."""
        return self.fields.get(key, self.element)


@dataclass(slots=True, eq=False)
class ListType:
    """A list. keys: of the items of a keyed list, sorted, with the default of a key that is left
    out (None: it has none); empty for a set. atomic: owned as a whole."""

    element: FieldType
    atomic: bool = True
    keys: tuple[tuple[str, Any], ...] = ()


@dataclass(slots=True, eq=False)
class FieldType:
    """What a value may be. scalar: "" if it cannot be one.

    deduced: the type of unknown content. build: sets the parts of a type that may contain itself
    when they are first needed.
    """

    scalar: str = ""
    list: ListType | None = None
    map: MapType | None = None
    deduced: bool = False
    build: Callable[[FieldType], None] | None = None

    def resolved(self) -> FieldType:
        """Itself, complete."""
        if self.build is not None:
            build, self.build = self.build, None
            build(self)
        return self


def _untyped() -> FieldType:
    """Unknown content that is owned as a whole."""
    one = FieldType(UNTYPED)
    one.list, one.map = ListType(one), MapType(element=one, atomic=True)
    return one


def _deduced() -> FieldType:
    """Unknown content: its maps are granular, its lists atomic."""
    one = FieldType(UNTYPED, deduced=True)
    one.list, one.map = ListType(UNTYPED_ATOMIC), MapType(element=one)
    return one


UNTYPED_ATOMIC = _untyped()
DEDUCED = _deduced()
_SCALARS = {name: FieldType(name) for name in (NUMERIC, STRING, BOOLEAN, UNTYPED)}


def scalar_type(name: str) -> FieldType:
    """The type of a scalar."""
    return _SCALARS[name]
