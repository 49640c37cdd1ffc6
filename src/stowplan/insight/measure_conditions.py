"""Conditions: expressions on the measures of a summary, such as `pending > 0 or lost != 0`.

    condition   = conjunction {"or" conjunction}
    conjunction = comparison {"and" comparison}
    comparison  = MEASURE OP NUMBER

`and` binds closer than `or`. OP is one of < <= > >= == !=.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping

import msgspec

from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_TOKEN = re.compile(r"\s*(?:(<=|>=|==|!=|<|>)|([^\s<>=!]+))")
_JOINS = ("and", "or")


class Comparison(msgspec.Struct, frozen=True):
    """A measure compared with a number."""

    measure: str
    op: str
    number: float

    def holds(self, measures: Mapping[str, float]) -> bool:
        """True if the measure compares so."""
        return OPERATORS[self.op](measures[self.measure], self.number)

    @property
    def text(self) -> str:
        """The comparison as written."""
        return f"{self.measure} {self.op} {self.number:g}"


class MeasureCondition(msgspec.Struct, frozen=True):
    """Comparisons joined by `and`, and those joined by `or`.

    alternatives: the condition holds if all comparisons of one of them hold.
    """

    source: str
    alternatives: tuple[tuple[Comparison, ...], ...]

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All comparisons, in order."""
        return tuple(one for group in self.alternatives for one in group)

    def check(self, known: Collection[str]) -> None:
        """Raise InputError for a measure that is not known."""
        for one in self.comparisons:
            if one.measure not in known:
                hint = did_you_mean(one.measure, known)
                wanted = f"one of {', '.join(known)}" + (f"; {hint}" if hint else "")
                raise InputError(self.source, "", f"unknown measure {one.measure!r}", wanted)

    def holds(self, measures: Mapping[str, float]) -> bool:
        """True if the condition holds; raises InputError for a measure that is not known."""
        self.check(measures.keys())
        return any(all(one.holds(measures) for one in group) for group in self.alternatives)


def parse_condition(text: str, source: str = "--fail-if") -> MeasureCondition:
    """The condition of an expression; raises InputError. source: named in errors."""
    return _ConditionParser(text, source).condition()


class _ConditionParser:
    """Recursive descent, a method for each rule of the grammar."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.text = text
        self.tokens: list[str] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None:
                raise InputError(source, "", repr(text[position:].strip()), "MEASURE OP NUMBER")
            self.tokens.append(found[1] or found[2])
            position = found.end()
        self.position = 0

    def condition(self) -> MeasureCondition:
        """The whole expression."""
        groups = [self.conjunction()]
        while self._takes("or"):
            groups.append(self.conjunction())
        if self.position < len(self.tokens):
            raise self._error("`and`, `or` or the end")
        return MeasureCondition(self.source, tuple(groups))

    def conjunction(self) -> tuple[Comparison, ...]:
        """Comparisons joined by `and`."""
        found = [self.comparison()]
        while self._takes("and"):
            found.append(self.comparison())
        return tuple(found)

    def comparison(self) -> Comparison:
        """MEASURE OP NUMBER."""
        measure = self._next("a measure")
        if measure in OPERATORS or measure in _JOINS:
            raise self._error("a measure", back=1)
        op = self._next(f"one of {' '.join(OPERATORS)}")
        if op not in OPERATORS:
            raise self._error(f"one of {' '.join(OPERATORS)}", back=1)
        return Comparison(measure, op, self.number())

    def number(self) -> float:
        """A finite number."""
        text = self._next("a number")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self._error("a number", back=1)
        return number

    def _takes(self, word: str) -> bool:
        is_next = self.tokens[self.position : self.position + 1] == [word]
        self.position += is_next
        return is_next

    def _next(self, wanted: str) -> str:
        if self.position == len(self.tokens):
            raise self._error(wanted)
        self.position += 1
        return self.tokens[self.position - 1]

    def _error(self, wanted: str, back: int = 0) -> InputError:
        at = self.position - back
        before = " ".join(self.tokens[:at])
        place = f"after {before!r}" if before else ""
        got = repr(self.tokens[at]) if at < len(self.tokens) else ""
        return InputError(self.source, place, got, wanted)
