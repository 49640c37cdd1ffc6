"""Resource arithmetic of sessions, evaluated per entry."""

from __future__ import annotations

from typing import Protocol

from stowplan.batch.state import task_requests
from stowplan.conformance.session_cases import Answer, ArithmeticEntry, SessionCase
from stowplan.framework.deciders.resource_vector import (
    ResourceVector,
    difference,
    minimum,
    parse_resources,
)
from stowplan.kube_batch_v05 import amounts
from stowplan.kube_batch_v05.amounts import KubeBatchPanic


class Arithmetic(Protocol):
    """Comparisons of one implementation."""

    def is_empty(self, amount: ResourceVector) -> bool:
        """True if nothing is named that counts."""

    def less(self, a: ResourceVector, b: ResourceVector) -> bool:
        """True if `a` is below `b`."""

    def less_equal(self, a: ResourceVector, b: ResourceVector) -> bool:
        """True if `a` is within `b`."""

    def subtract(self, a: ResourceVector, b: ResourceVector) -> ResourceVector:
        """Subtract in place."""

    def shortage(self, have: ResourceVector, request: ResourceVector) -> ResourceVector:
        """What is left of `have`, negative where it is insufficient."""


def answer_units(case: SessionCase, compat: str) -> Answer:
    """Answers to the entries, in order. compat: as for `session_evaluation.answer`."""
    arithmetic: Arithmetic = amounts if compat else task_requests
    return {"units": [_entry(unit, arithmetic) for unit in case.units or ()]}


def _entry(unit: ArithmeticEntry, arithmetic: Arithmetic) -> Answer:
    a = parse_resources(unit.a)
    if unit.op == "parse":
        return {"value": rounded_amount(a), "pods": a.pods}
    try:
        return {"value": _value(unit, a, parse_resources(unit.b), arithmetic)}
    except KubeBatchPanic as panic:
        return {"panic": str(panic)}


def _value(
    unit: ArithmeticEntry, a: ResourceVector, b: ResourceVector, arithmetic: Arithmetic
) -> object:
    match unit.op:
        case "add":
            return rounded_amount(a.add(b))
        case "sub":
            return rounded_amount(arithmetic.subtract(a, b))
        case "less":
            return arithmetic.less(a, b)
        case "lessEqual":
            return arithmetic.less_equal(a, b)
        case "isEmpty":
            return arithmetic.is_empty(a)
        case "fitDelta":
            return rounded_amount(arithmetic.shortage(a, b))
        case "setMax":
            a.raise_to(b)
            return rounded_amount(a)
        case "diff":
            return [rounded_amount(amount) for amount in difference(a, b)]
        case "min":
            return rounded_amount(minimum(a, b))
        case "multi":
            return rounded_amount(a.times(unit.r))
    raise ValueError(f"unknown operation {unit.op!r}")


def rounded_amount(amount: ResourceVector) -> Answer:
    """An amount as in recorded answers: rounded to thousandths, scalars only if present."""
    result: Answer = {"cpu": round(amount.cpu, 3), "memory": round(amount.memory, 3)}
    if amount.scalars is not None:
        result["scalars"] = {name: round(n, 3) for name, n in amount.scalars.items()}
    return result
