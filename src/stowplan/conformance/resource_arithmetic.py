"""Resource arithmetic of sessions, evaluated per entry."""

from __future__ import annotations

from stowplan.batch.compat import Compat
from stowplan.batch.state.resource_vector import (
    ResourceArithmetic,
    ResourceVector,
    SessionPanic,
    difference,
    minimum,
    parse_resources,
)
from stowplan.conformance.session_cases import Answer, ArithmeticEntry, SessionCase


def answer_units(case: SessionCase, compat: Compat) -> Answer:
    """Answers to the entries, in order."""
    arithmetic = ResourceArithmetic(compat)
    return {"units": [_entry(unit, arithmetic) for unit in case.units or ()]}


def _entry(unit: ArithmeticEntry, arithmetic: ResourceArithmetic) -> Answer:
    a = parse_resources(unit.a)
    if unit.op == "parse":
        return {"value": rounded_amount(a), "pods": a.pods}
    try:
        return {"value": _value(unit, a, parse_resources(unit.b), arithmetic)}
    except SessionPanic as panic:
        return {"panic": str(panic)}


def _value(
    unit: ArithmeticEntry, a: ResourceVector, b: ResourceVector, arithmetic: ResourceArithmetic
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
