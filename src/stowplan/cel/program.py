"""Compiled expressions: text, checked tree and plan, once per text and environment.

Source: cel-go v0.26, cel/env.go, cel/program.go; apiserver v1.36, pkg/cel/environment/base.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from stowplan.cel.cel_types import CelType
from stowplan.cel.checker import CheckedTypes, check
from stowplan.cel.interpreter import Activation, Step, instantiation_fault, plan, variables_of
from stowplan.cel.libraries.addresses import address_library
from stowplan.cel.libraries.list_library import list_library
from stowplan.cel.libraries.quantities import quantity_library
from stowplan.cel.libraries.standard_library import standard_library
from stowplan.cel.libraries.text_library import text_library
from stowplan.cel.libraries.urls import url_library
from stowplan.cel.libraries.versions import semver_library
from stowplan.cel.literal_checks import check_literals
from stowplan.cel.overloads import Library
from stowplan.cel.parser import parse
from stowplan.cel.syntax_tree import CompileError, Expression, Issues
from stowplan.cel.values import CostLimitError, EvaluationError

_PROGRAMS_MAX = 4096
# Differs: nesting is limited by Python's stack, at about a hundred levels; the original has 250.
_TOO_DEEP = "expression recursion limit exceeded: 250"


@dataclass(frozen=True)
class EvaluationOutcome:
    """One evaluation: a value or an error, "" for none, and what it cost. is_over: the cost limit
    ended it."""

    value: Any
    error: str
    cost: int
    is_over: bool = False


@dataclass(frozen=True)
class Program:
    """A compiled expression. fault: why the original would not make a program of it; the error of
    a constant that cannot be converted, "" for none."""

    text: str
    tree: Expression
    types: CheckedTypes
    step: Step
    fault: str

    @property
    def result_type(self) -> CelType:
        """Type of the expression."""
        return self.types.result

    def evaluate(self, variables: Mapping[str, Any], cost_limit: int) -> tuple[Any, int]:
        """(value, cost); raises EvaluationError and CostLimitError."""
        activation = Activation(variables_of(dict(variables)), cost_limit)
        try:
            return self.step(activation), activation.cost
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None

    def outcome(self, variables: Mapping[str, Any], cost_limit: int) -> EvaluationOutcome:
        """As `evaluate`; an error is part of the outcome."""
        activation = Activation(variables_of(dict(variables)), cost_limit)
        try:
            return EvaluationOutcome(self.step(activation), "", activation.cost)
        except RecursionError:
            return EvaluationOutcome(None, _TOO_DEEP, activation.cost)
        except EvaluationError as error:
            return EvaluationOutcome(None, str(error), activation.cost)
        except CostLimitError as error:
            return EvaluationOutcome(None, str(error), activation.cost, is_over=True)


@dataclass
class Environment:
    """Variables and functions that expressions may use; keeps what it compiled.

    objects: types that expressions may construct, by name.
    """

    variables: Mapping[str, CelType]
    library: Library
    objects: Mapping[str, CelType] = field(default_factory=dict)
    _programs: dict[str, Program] = field(default_factory=dict)

    def compile(self, text: str) -> Program:
        """The program of a text; raises CompileError."""
        program = self._programs.get(text)
        if program is None:
            try:
                program = self._compiled(text)
            except RecursionError:
                raise CompileError(f"ERROR: <input>:-1:0: {_TOO_DEEP}") from None
            if len(self._programs) >= _PROGRAMS_MAX:
                self._programs.clear()
            self._programs[text] = program
        return program

    def _compiled(self, text: str) -> Program:
        issues = Issues(text)
        tree = parse(text)
        types = check(tree, issues, self.library, self.variables, self.objects)
        issues.raise_found()
        check_literals(tree, issues)
        issues.raise_found()
        return Program(text, tree, types, plan(tree), instantiation_fault(tree))


@cache
def kubernetes_library() -> Library:
    """The functions that Kubernetes has in every environment, but for named formats and the
    authorizer, which need more than this package has."""
    return standard_library().extended([
        text_library(), list_library(), quantity_library(), semver_library(), address_library(),
        url_library(),
    ])  # fmt: skip
