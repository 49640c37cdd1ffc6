"""Syntax tree of CEL expressions, and errors with a position in the text.

Source: cel-spec, doc/langdef.md; cel-go v0.26, common/ast and common/errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias


class CompileError(ValueError):
    """A text that is no valid expression; the message has every issue and its place."""


@dataclass(slots=True)
class Constant:
    """A literal. value: as `values.py` represents it."""

    value: Any
    offset: int


@dataclass(slots=True)
class Identifier:
    """A name of a variable or type."""

    name: str
    offset: int


@dataclass(slots=True)
class Selection:
    """`operand.field`. is_test: it is the argument of `has`. is_optional: `operand.?field`.
    variable: the name of a variable that the whole is, filled by the checker."""

    operand: Expression
    field: str
    offset: int
    is_test: bool = False
    is_optional: bool = False
    variable: str = ""


@dataclass(slots=True)
class FunctionCall:
    """A call of a function or operator.

    target: None for a global function. overloads: what the checker found, filled by it.
    """

    function: str
    arguments: list[Expression]
    offset: int
    target: Expression | None = None
    overloads: tuple[Any, ...] = ()


@dataclass(slots=True)
class ListLiteral:
    """`[a, ?b]`. optional: indices of elements that are left out where they are none."""

    elements: list[Expression]
    offset: int
    optional: frozenset[int] = frozenset()


@dataclass(slots=True)
class MapLiteral:
    """`{k: v, ?k: v}`. optional: indices of entries that are left out where they are none."""

    entries: list[tuple[Expression, Expression]]
    offset: int
    optional: frozenset[int] = frozenset()


@dataclass(slots=True)
class ObjectLiteral:
    """`Name{field: value, ?other: value}`. fields: name, value and place of each. optional: names
    of those that are left out where they are none."""

    name: str
    fields: list[tuple[str, Expression, int]]
    offset: int
    optional: frozenset[str] = frozenset()


@dataclass(slots=True)
class Comprehension:
    """A loop over a list or map, to which macros expand.

    variable2: second loop variable, "" for none. The loop ends where `condition` is false.
    """

    variable: str
    range: Expression
    accumulator: str
    initial: Expression
    condition: Expression
    step: Expression
    result: Expression
    offset: int
    variable2: str = ""


Expression: TypeAlias = (
    Constant
    | Identifier
    | Selection
    | FunctionCall
    | ListLiteral
    | MapLiteral
    | ObjectLiteral
    | Comprehension
)


def qualified_name(expression: Expression | None) -> str:
    """`a.b.c` of a chain of names, "" for anything else."""
    if isinstance(expression, Identifier):
        return expression.name
    if isinstance(expression, Selection) and not expression.is_test and not expression.is_optional:
        outer = qualified_name(expression.operand)
        return f"{outer}.{expression.field}" if outer else ""
    return ""


def parts_of(expression: Expression) -> list[Expression]:
    """The direct parts of an expression, in the order in which they are planned."""
    match expression:
        case Selection():
            return [expression.operand]
        case FunctionCall():
            target = [] if expression.target is None else [expression.target]
            return [*target, *expression.arguments]
        case ListLiteral():
            return list(expression.elements)
        case MapLiteral():
            return [one for entry in expression.entries for one in entry]
        case ObjectLiteral():
            return [value for _, value, _ in expression.fields]
        case Comprehension():
            loop = expression
            return [loop.range, loop.initial, loop.condition, loop.step, loop.result]
    return []


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all below it; parts come before their whole."""
    for part in parts_of(expression):
        yield from walk(part)
    yield expression


@dataclass(slots=True)
class Issues:
    """Issues of one text, in the order in which they were found."""

    text: str
    found: list[tuple[int, str]] = field(default_factory=list)

    def report(self, offset: int, message: str) -> None:
        """Add an issue at a position of the text."""
        self.found.append((offset, message))

    def raise_found(self) -> None:
        """Raise CompileError with all issues in the order of the text."""
        if self.found:
            ordered = sorted(self.found, key=lambda issue: issue[0])
            raise CompileError("\n".join(self._place(*issue) for issue in ordered))

    def _place(self, offset: int, message: str) -> str:
        if not self.text:
            return f"ERROR: <input>:1:0: {message}"
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", start)
        line = self.text[start:] if end < 0 else self.text[start:end]
        line = line.replace("\t", " ")
        number = self.text.count("\n", 0, start) + 1
        column = offset - start
        marks = "".join("\uff0e" if ord(c) > 0x7F else "." for c in line[:column])
        marks = marks.ljust(column, ".")
        mark = "\uff3e" if column < len(line) and ord(line[column]) > 0x7F else "^"
        return f"ERROR: <input>:{number}:{column + 1}: {message}\n | {line}\n | {marks}{mark}"
