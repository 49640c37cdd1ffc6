"""Types that the checker computes with.

Source: cel-go v0.26, common/types/types.go and checker/types.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

_FORM = re.compile(r"[\w.]+|[(),]")
_PRIMITIVES = frozenset({
    "bool", "int", "uint", "double", "string", "bytes", "null_type", "dyn", "any", "error",
    "google.protobuf.Duration", "google.protobuf.Timestamp",
})  # fmt: skip
_FORMATTED = {
    "null_type": "null",
    "google.protobuf.Duration": "duration",
    "google.protobuf.Timestamp": "timestamp",
    "error": "!error!",
}
# The constructors of the original's `type(...)` and their number of parameters.
_DYNAMIC = frozenset({"dyn", "any", "error"})


@dataclass(frozen=True, slots=True)
class CelType:
    """A type. name: of a primitive, constructor (`list`, `map`, `type`, `optional_type`), object,
    or a type parameter (one capital letter, or a fresh one that begins with `_`). fields: of an
    object whose fields are known, None for other types; types of one name are the same type."""

    name: str
    parameters: tuple[CelType, ...] = ()
    fields: Mapping[str, CelType] | None = field(default=None, compare=False)

    @property
    def is_parameter(self) -> bool:
        """True for a type parameter."""
        return self.name[0] == "_" or (len(self.name) == 1 and self.name.isupper())

    @property
    def is_dynamic(self) -> bool:
        """True for a type that is assignable both ways."""
        return self.name in _DYNAMIC

    def __str__(self) -> str:
        name = _FORMATTED.get(self.name, self.name)
        inner = ", ".join(map(str, self.parameters))
        return f"{name}({inner})" if inner else name


@cache
def cel_type(notation: str) -> CelType:
    """The type of a notation such as `map(string, list(A))`."""
    words = _FORM.findall(notation)
    found, rest = _read(words)
    if rest:
        raise ValueError(f"type {notation!r}: unexpected {rest[0]!r}")
    return found


def _read(words: list[str]) -> tuple[CelType, list[str]]:
    name, rest = words[0], words[1:]
    name = {"null": "null_type", "duration": "google.protobuf.Duration",
            "timestamp": "google.protobuf.Timestamp"}.get(name, name)  # fmt: skip
    parameters: list[CelType] = []
    if rest and rest[0] == "(":
        rest = rest[1:]
        while True:
            inner, rest = _read(rest)
            parameters.append(inner)
            separator, rest = rest[0], rest[1:]
            if separator == ")":
                break
    return CelType(name, tuple(parameters)), rest


BOOL, INT, UINT = cel_type("bool"), cel_type("int"), cel_type("uint")
DOUBLE, STRING, BYTES = cel_type("double"), cel_type("string"), cel_type("bytes")
NULL, DYN, ANY, ERROR = cel_type("null"), cel_type("dyn"), cel_type("any"), cel_type("error")


class Substitution:
    """Type parameters and the types that stand for them, in one check."""

    def __init__(self) -> None:
        """No parameter has a type yet."""
        self.bound: dict[str, CelType] = {}
        self._n_fresh = 0

    def fresh(self) -> CelType:
        """A new type parameter."""
        self._n_fresh += 1
        return CelType(f"_{self._n_fresh}")

    def instance(self, declared: CelType, names: dict[str, CelType]) -> CelType:
        """The type with a new parameter for each of its own; names: those made so far."""
        if declared.is_parameter:
            return names.setdefault(declared.name, self.fresh())
        if not declared.parameters:
            return declared
        inner = tuple(self.instance(one, names) for one in declared.parameters)
        return CelType(declared.name, inner, declared.fields)

    def resolve(self, found: CelType, *, free_to_dyn: bool = False) -> CelType:
        """The type with parameters replaced; free_to_dyn: those without a type become dyn."""
        while found.is_parameter and found.name in self.bound:
            found = self.bound[found.name]
        if found.is_parameter:
            return DYN if free_to_dyn else found
        if not found.parameters:
            return found
        inner = tuple(self.resolve(one, free_to_dyn=free_to_dyn) for one in found.parameters)
        return CelType(found.name, inner, found.fields)

    def assign_all(self, given: list[CelType], wanted: list[CelType]) -> bool:
        """True where all types are assignable; binds parameters only then."""
        before = dict(self.bound)
        if len(given) == len(wanted) and all(map(self._assign, given, wanted)):
            return True
        self.bound = before
        return False

    def assign(self, given: CelType, wanted: CelType) -> bool:
        """True where `given` may stand for `wanted`; binds parameters only then."""
        return self.assign_all([given], [wanted])

    def _assign(self, given: CelType, wanted: CelType) -> bool:
        if given == wanted:
            return True
        if wanted.is_parameter:
            return self._bind(given, wanted)
        if given.is_parameter:
            return self._bind(wanted, given)
        if given.is_dynamic or wanted.is_dynamic:
            return True
        if given.name == "null_type":
            return wanted.name not in _PRIMITIVES - {"null_type"} and wanted.name not in (
                "list", "map", "type", "optional_type",
            )  # fmt: skip
        if given.name == wanted.name == "type":
            return True
        if given.name != wanted.name or len(given.parameters) != len(wanted.parameters):
            return False
        return all(map(self._assign, given.parameters, wanted.parameters))

    def _bind(self, found: CelType, parameter: CelType) -> bool:
        held = self.bound.get(parameter.name)
        if held is not None:
            if not self._assign(found, held):
                return False
            general = most_general(found, held)
            if self._is_free_of(parameter.name, general):
                self.bound[parameter.name] = general
            return True
        if self._is_free_of(parameter.name, found):
            self.bound[parameter.name] = found
            return True
        return False

    def _is_free_of(self, name: str, found: CelType) -> bool:
        """False where the type is about the parameter itself."""
        if found.name == name:
            return False
        if found.is_parameter:
            held = self.bound.get(found.name)
            return held is None or self._is_free_of(name, held)
        return all(self._is_free_of(name, one) for one in found.parameters)


def most_general(first: CelType, second: CelType) -> CelType:
    """Of two types the one that is equal to or less specific than the other."""
    return first if _is_less_specific(first, second) else second


def _is_less_specific(first: CelType, second: CelType) -> bool:
    if first.is_dynamic:
        return True
    if second.is_dynamic:
        return False
    if second.is_parameter:
        return True
    if first.is_parameter:
        return False
    if first.name != second.name or len(first.parameters) != len(second.parameters):
        return False
    return all(map(_is_less_specific, first.parameters, second.parameters))
