"""Conditions: expressions on the measures of a summary, such as `pending > 0 or lost != 0`.

    condition   = conjunction {"or" conjunction}
    conjunction = comparison {"and" comparison}
    comparison  = MEASURE OP NUMBER

`and` binds closer than `or`. OP is one of < <= > >= == !=. Where several policies are compared, as
in `wait_p99: B > A by 5%`, there is also

    comparison  = MEASURE ":" POLICY OP POLICY ["by" NUMBER ["%"]]
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

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
T = TypeVar("T")


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


class PolicyComparison(msgspec.Struct, frozen=True):
    """A measure of a policy compared with that of another.

    left, right: policies by name, or by letter in their order. by: least difference, in parts of
    the right one's value where `is_relative`.
    """

    measure: str
    left: str
    op: str
    right: str
    by: float = 0.0
    is_relative: bool = False

    def holds(self, left: float, right: float) -> bool:
        """True if the values compare so, with the difference that is named."""
        margin = self.by * abs(right) if self.is_relative else self.by
        return OPERATORS[self.op](left, right - margin if self.op[0] == "<" else right + margin)

    @property
    def text(self) -> str:
        """The comparison as written."""
        by = f" by {100 * self.by:g}%" if self.is_relative else f" by {self.by:g}"
        return f"{self.measure}: {self.left} {self.op} {self.right}{by if self.by else ''}"


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


class PolicyCondition(msgspec.Struct, frozen=True):
    """As MeasureCondition, of runs by policy: `Comparison` asks for any policy."""

    source: str
    alternatives: tuple[tuple[Comparison | PolicyComparison, ...], ...]

    @property
    def comparisons(self) -> tuple[Comparison | PolicyComparison, ...]:
        """All comparisons, in order."""
        return tuple(one for group in self.alternatives for one in group)


def parse_condition(text: str, source: str = "--fail-if") -> MeasureCondition:
    """The condition of an expression; raises InputError. source: named in errors."""
    parser = _ConditionParser(text, source)
    return MeasureCondition(source, parser.condition(parser.comparison))


def parse_policy_condition(text: str, source: str = "--fail-if") -> PolicyCondition:
    """The condition of an expression that may name policies; raises InputError."""
    parser = _ConditionParser(text, source)
    return PolicyCondition(source, parser.condition(parser.policy_comparison))


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

    def condition(self, comparison: Callable[[], T]) -> tuple[tuple[T, ...], ...]:
        """The whole expression."""
        groups = [self.conjunction(comparison)]
        while self._takes("or"):
            groups.append(self.conjunction(comparison))
        if self.position < len(self.tokens):
            raise self._error("`and`, `or` or the end")
        return tuple(groups)

    def conjunction(self, comparison: Callable[[], T]) -> tuple[T, ...]:
        """Comparisons joined by `and`."""
        found = [comparison()]
        while self._takes("and"):
            found.append(comparison())
        return tuple(found)

    def comparison(self) -> Comparison:
        """MEASURE OP NUMBER."""
        measure = self._next("a measure")
        if measure in OPERATORS or measure in _JOINS:
            raise self._error("a measure", back=1)
        return Comparison(measure, self._operator(), self.number())

    def policy_comparison(self) -> Comparison | PolicyComparison:
        """MEASURE OP NUMBER, or MEASURE: POLICY OP POLICY [by NUMBER[%]]."""
        if self.position == len(self.tokens) or not self._names_policies():
            return self.comparison()
        measure = self._next("a measure").removesuffix(":")
        self._takes(":")
        left, op = self._policy(), self._operator()
        right = self._policy()
        if not self._takes("by"):
            return PolicyComparison(measure, left, op, right)
        if op in ("==", "!="):
            raise self._error("no `by`, which is for < <= > >=", back=1)
        text = self._next("a number, or a percentage such as 5%")
        is_relative = text.endswith("%") or self.tokens[self.position : self.position + 1] == ["%"]
        if is_relative and not text.endswith("%"):
            self.position += 1
        by = _finite(text.removesuffix("%"))
        if by is None or by < 0:
            back = 1 if text.endswith("%") or not is_relative else 2
            raise self._error("a number from 0 up, or a percentage such as 5%", back=back)
        return PolicyComparison(
            measure, left, op, right, by / 100 if is_relative else by, is_relative
        )

    def _names_policies(self) -> bool:
        """True where a colon follows the measure."""
        first, *rest = self.tokens[self.position : self.position + 2]
        measure, colon, policy = first.partition(":")
        if measure and policy:
            self.tokens[self.position : self.position + 1] = [measure + colon, policy]
        return bool(measure and colon) or rest == [":"]

    def _policy(self) -> str:
        found = self._next("a policy")
        if found in OPERATORS or found in _JOINS:
            raise self._error("a policy", back=1)
        return found

    def _operator(self) -> str:
        wanted = f"one of {' '.join(OPERATORS)}"
        op = self._next(wanted)
        if op not in OPERATORS:
            raise self._error(wanted, back=1)
        return op

    def number(self) -> float:
        """A finite number."""
        number = _finite(self._next("a number"))
        if number is None:
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


def _finite(text: str) -> float | None:
    """The number, None for anything else."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
