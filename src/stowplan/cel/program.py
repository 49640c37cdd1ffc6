"""Compiled expressions: text, checked tree and plan, once per text and environment.

Source: cel-go v0.26, cel/env.go, cel/program.go; apiserver v1.36, pkg/cel/environment/base.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from stowplan.cel.cel_types import CelType
from stowplan.cel.checker import check
from stowplan.cel.interpreter import Activation, Step, plan, variables_of
from stowplan.cel.libraries.list_library import list_library
from stowplan.cel.libraries.quantities import quantity_library
from stowplan.cel.libraries.standard_library import standard_library
from stowplan.cel.libraries.text_library import text_library
from stowplan.cel.libraries.versions import semver_library
from stowplan.cel.overloads import Library
from stowplan.cel.parser import parse
from stowplan.cel.syntax_tree import CompileError, Issues
from stowplan.cel.values import EvaluationError

_PROGRAMS_MAX = 4096
# Differs: nesting is limited by Python's stack, at about a hundred levels; the original has 250.
_TOO_DEEP = "expression recursion limit exceeded: 250"


@dataclass(frozen=True)
class Program:
    """A compiled expression. result_type: as the checker found it."""

    text: str
    result_type: CelType
    step: Step

    def evaluate(self, variables: Mapping[str, Any], cost_limit: int) -> tuple[Any, int]:
        """(value, cost); raises EvaluationError and CostLimitError."""
        activation = Activation(variables_of(dict(variables)), cost_limit)
        try:
            return self.step(activation), activation.cost
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None


@dataclass
class Environment:
    """Variables and functions that expressions may use; keeps what it compiled."""

    variables: Mapping[str, CelType]
    library: Library
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
        result_type = check(tree, issues, self.library, self.variables)
        issues.raise_found()
        return Program(text, result_type, plan(tree))


@cache
def kubernetes_library() -> Library:
    """The functions that Kubernetes has in every environment.

    Differs: the libraries of URLs, IP addresses, CIDRs, named formats and of the authorizer are not
    there; expressions that use them do not compile.
    """
    return standard_library().extended([
        text_library(), list_library(), quantity_library(), semver_library(),
    ])  # fmt: skip
