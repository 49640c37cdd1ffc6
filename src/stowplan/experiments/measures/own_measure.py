"""Own measures: Python functions over a result, named `FILE.py:FUNCTION`."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from stowplan.assembly.python_files import run_file
from stowplan.experiments.measures.measure_table import MEASURES, Measure, Value, Values
from stowplan.experiments.measures.run_result import RunResult
from stowplan.framework.problems import ContractError, did_you_mean
from stowplan.inputs.files import read_bytes
from stowplan.inputs.input_error import InputError

DIRECTIONS = ("lower", "higher", "")


def own_measure(source: str) -> Measure:
    """The measure of `FILE.py:FUNCTION`; raises InputError.

    The function takes a RunResult and returns a number, None, or a mapping of names to numbers. Its
    name is the measure's, its docstring the description; attributes `unit` and `better` of the
    function are optional, and a measure with a direction is compared.
    """
    file, colon, name = source.rpartition(":")
    if not colon or not file or not name.isidentifier():
        raise InputError("measure", "", repr(source), "FILE.py:FUNCTION")
    module = _module(file)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [one for one, value in vars(module).items() if callable(value)]
        hint = did_you_mean(name, functions)
        wanted = "a function of the file" + (f" ({hint})" if hint else "")
        raise InputError(file, "", f"unknown function {name!r}", wanted)
    if any(name == one.name for one in MEASURES):
        raise InputError(file, "", f"function {name!r}", "a name that no measure of the table has")
    better = getattr(function, "better", "")
    if better not in DIRECTIONS:
        raise InputError(file, f"{name}.better", repr(better), "`lower`, `higher` or nothing")
    text = (function.__doc__ or "").strip().partition("\n")[0]
    unit = str(getattr(function, "unit", ""))
    return Measure(name, unit, better, _checked(source, function), text, "name", bool(better))


def _checked(
    source: str, function: Callable[[RunResult], Any]
) -> Callable[[RunResult], Value | Values]:
    """The function with a check of what it returns."""

    def compute(run: RunResult) -> Value | Values:
        found = function(run)
        if isinstance(found, Mapping):
            return {str(name): _number(source, value) for name, value in found.items()}
        return _number(source, found)

    return compute


def _number(source: str, value: object) -> Value:
    if value is None:
        return None
    if not isinstance(value, numbers.Real) or not math.isfinite(value):
        got = f"returned {value!r}"[:80]
        raise InputError(source, "", got, "a finite number, None, or a mapping of names to them")
    return float(value)


def _module(file: str) -> ModuleType:
    """The module of a file; it is run each time, so that a run leaves nothing to the next."""
    read_bytes(file)
    try:
        return run_file(file)
    except ContractError as problem:
        raise InputError.at("measure", "", problem) from problem
