"""What CEL selectors of devices may use, and their compilation.

Source: dynamic-resource-allocation v1.36, cel/compile.go.

Differs: the worst cost of an expression is not estimated, so none is refused as too complex.
"""

from __future__ import annotations

from typing import Any

from stowplan.cel.cel_types import BOOL, STRING, CelType, cel_type
from stowplan.cel.overloads import Library
from stowplan.cel.program import Environment, Program, kubernetes_library
from stowplan.cel.syntax_tree import CompileError
from stowplan.cel.values import EvaluationError, equal

_LIST_VALUES_MAX = 32
_ALLOWED = ("bool", "any", "dyn")
"""Results: attributes are of type any, or dyn with lists."""


class DeviceSelectorError(ValueError):
    """A selector that does not compile, in the original's words."""


def device_environment(*, with_lists: bool = False) -> Environment:
    """Variable `device` and Kubernetes' functions. with_lists: with the gate
    DRAListTypeAttributes."""
    attribute = "dyn" if with_lists else "any"
    device = CelType(
        "kubernetes.DRADevice",
        (),
        {
            "driver": STRING,
            "allowMultipleAllocations": BOOL,
            "attributes": cel_type(f"map(string, map(string, {attribute}))"),
            "capacity": cel_type("map(string, map(string, kubernetes.Quantity))"),
        },
    )
    library = kubernetes_library()
    if with_lists:
        own = Library()
        own.add("dra_includes_dyn_dyn", "dyn->includes(dyn) bool", _includes)
        library = library.extended([own])
    return Environment({"device": device}, library)


def _includes(target: Any, wanted: Any) -> bool:
    if not isinstance(target, tuple):
        return equal(target, wanted)
    if any(equal(one, wanted) for one in target[:_LIST_VALUES_MAX]):
        return True
    if len(target) > _LIST_VALUES_MAX:
        raise EvaluationError(
            f"'includes' function cannot be applied to lists longer than {_LIST_VALUES_MAX} values"
        )
    return False


def compile_selector(environment: Environment, expression: str) -> Program:
    """The program of a selector, which is a bool or of unknown type. Raises DeviceSelectorError."""
    try:
        program = environment.compile(expression)
    except CompileError as fault:
        raise DeviceSelectorError(f"compilation failed: {fault}") from None
    found = program.result_type
    if found.name not in _ALLOWED:
        raise DeviceSelectorError(f"must evaluate to bool or the unknown type, not {found}")
    return program
