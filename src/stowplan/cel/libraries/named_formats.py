"""Named formats in CEL: `format.dns1123Label().validate(text)`.

Source: apiserver v1.36, pkg/cel/library/format.go, pkg/cel/format.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stowplan.cel.libraries.standard_library import REGEX_FACTOR, STRING_FACTOR
from stowplan.cel.overloads import Library
from stowplan.cel.values import LIBRARY_KINDS, NONE_VALUE, OptionalValue, ValueKind

FORMAT_TYPE = "kubernetes.NamedFormat"


@dataclass(frozen=True)
class NamedFormat:
    """A format. problems: of a text, empty for a good one. n_pattern: length of its regular
    expression, for the cost."""

    name: str
    problems: Callable[[str], list[str]]
    n_pattern: int


LIBRARY_KINDS[NamedFormat] = ValueKind(FORMAT_TYPE, lambda one, two: bool(one.name == two.name))


def _validate(held: NamedFormat, text: str) -> OptionalValue:
    problems = held.problems(text)
    return OptionalValue(True, tuple(problems)) if problems else NONE_VALUE


def _cost(values: tuple[Any, ...], result: Any) -> int:
    held, text = values
    pattern: int = math.ceil(held.n_pattern * REGEX_FACTOR)
    return math.ceil((1.0 + len(text)) * STRING_FACTOR) * pattern


def format_library(formats: Mapping[str, NamedFormat]) -> Library:
    """`format.named`, a function for each format, and `validate`. formats: by their names here."""
    library = Library()

    def named(name: str) -> OptionalValue:
        found = formats.get(name)
        return NONE_VALUE if found is None else OptionalValue(True, found)

    library.add("format-named", f"format.named(string) optional_type({FORMAT_TYPE})", named)
    signature = f"{FORMAT_TYPE}->validate(string) optional_type(list(string))"
    library.add("format-validate", signature, _validate, _cost)
    for name, held in formats.items():

        def constant(held: NamedFormat = held) -> NamedFormat:
            return held

        library.add(f"format.{name}", f"format.{name}() {FORMAT_TYPE}", constant)
    return library
