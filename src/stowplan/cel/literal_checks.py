"""Checks of literal arguments: times, durations and regular expressions must be readable.

Source: cel-go v0.26, cel/validator.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.cel.libraries.moments import parse_duration, parse_timestamp
from stowplan.cel.libraries.standard_library import regular_expression
from stowplan.cel.syntax_tree import Constant, Expression, FunctionCall, Issues, walk
from stowplan.cel.values import EvaluationError

_READERS: dict[str, Callable[[str], Any]] = {
    "duration": parse_duration, "timestamp": parse_timestamp, "matches": regular_expression,
}  # fmt: skip


def check_literals(tree: Expression, issues: Issues) -> None:
    """Report literals that their function cannot read."""
    for one in walk(tree):
        if not isinstance(one, FunctionCall) or one.function not in _READERS or not one.arguments:
            continue
        literal = one.arguments[0]
        if not isinstance(literal, Constant) or not isinstance(literal.value, str):
            continue
        try:
            _READERS[one.function](literal.value)
        except EvaluationError:
            issues.report(literal.offset, f"invalid {one.function} argument")
