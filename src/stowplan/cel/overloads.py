"""Functions as libraries declare them: overloads with types, an implementation and a cost.

An overload is declared in one line: `string.charAt(int) string` for a member function,
`size(string) int` for a global one. At run time the arguments' types choose among overloads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from stowplan.cel.cel_types import CelType, cel_type

Implementation = Callable[..., Any]
Cost = Callable[[tuple[Any, ...], Any], int]

_SIGNATURE = re.compile(r"(?:(?P<target>.+)->)?(?P<name>[^(]+)\((?P<arguments>.*)\) (?P<result>.+)")


@dataclass(frozen=True)
class Overload:
    """One overload. parameters: with the target first, where `is_member`. is_priced_first: its
    cost depends on its arguments alone and is more than their size, so that it is checked before
    the call and not only counted after it."""

    function: str
    overload_id: str
    parameters: tuple[CelType, ...]
    result: CelType
    run: Implementation
    is_member: bool
    cost: Cost | None = None
    is_priced_first: bool = False

    def accepts(self, kinds: tuple[str, ...]) -> bool:
        """True where arguments of these kinds are the overload's."""
        return len(kinds) == len(self.parameters) and all(
            wanted.is_parameter or wanted.is_dynamic or wanted.name == kind
            for wanted, kind in zip(self.parameters, kinds, strict=True)
        )


@dataclass
class Library:
    """Functions by name."""

    functions: dict[str, list[Overload]] = field(default_factory=dict)

    def add(
        self,
        overload_id: str,
        signature: str,
        run: Implementation,
        cost: Cost | None = None,
        *,
        is_priced_first: bool = False,
    ) -> None:
        """Declare an overload; signature: `TARGET->NAME(TYPES) TYPE`, without target if global."""
        match = _SIGNATURE.fullmatch(signature)
        if match is None:
            raise ValueError(f"signature {signature!r}")
        target, name = match["target"], match["name"]
        types = [cel_type(one) for one in _split(match["arguments"])]
        if target is not None:
            types.insert(0, cel_type(target))
        made = Overload(
            name,
            overload_id,
            tuple(types),
            cel_type(match["result"]),
            run,
            target is not None,
            cost,
            is_priced_first,
        )
        self.functions.setdefault(name, []).append(made)

    def extended(self, others: Iterable[Library]) -> Library:
        """A library with the functions of all."""
        made = Library({name: list(found) for name, found in self.functions.items()})
        for other in others:
            for name, found in other.functions.items():
                made.functions.setdefault(name, []).extend(found)
        return made


def _split(text: str) -> list[str]:
    """The types of an argument list, at commas outside of parentheses."""
    found: list[str] = []
    depth = start = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            found.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*found, last] if last else found
