"""Resource arithmetic of sessions, entry by entry."""

from __future__ import annotations

from stowplan.batch.amounts import (
    Amount,
    Arithmetic,
    SessionPanic,
    difference,
    lesser,
    parsed,
)
from stowplan.batch.compat import Compat
from stowplan.sim.session_cases import Answer, SessionCase, Unit


def answer_units(case: SessionCase, compat: Compat) -> Answer:
    """The answers to the entries, in their order."""
    arithmetic = Arithmetic(compat)
    return {"units": [_entry(unit, arithmetic) for unit in case.units or ()]}


def _entry(unit: Unit, arithmetic: Arithmetic) -> Answer:
    a = parsed(unit.a)
    if unit.op == "parse":
        return {"value": shown(a), "pods": a.pods}
    try:
        return {"value": _value(unit, a, parsed(unit.b), arithmetic)}
    except SessionPanic as panic:
        return {"panic": str(panic)}


def _value(unit: Unit, a: Amount, b: Amount, arithmetic: Arithmetic) -> object:
    match unit.op:
        case "add":
            return shown(a.add(b))
        case "sub":
            return shown(arithmetic.subtract(a, b))
        case "less":
            return arithmetic.less(a, b)
        case "lessEqual":
            return arithmetic.less_equal(a, b)
        case "isEmpty":
            return arithmetic.is_empty(a)
        case "fitDelta":
            return shown(arithmetic.shortage(a, b))
        case "setMax":
            a.raise_to(b)
            return shown(a)
        case "diff":
            return [shown(amount) for amount in difference(a, b)]
        case "min":
            return shown(lesser(a, b))
        case "multi":
            return shown(a.times(unit.r))
    raise ValueError(f"unknown operation {unit.op!r}")


def shown(amount: Amount) -> Answer:
    """An amount as answers have it: rounded to thousandths, scalars only where some are named."""
    result: Answer = {"cpu": round(amount.cpu, 3), "memory": round(amount.memory, 3)}
    if amount.scalars is not None:
        result["scalars"] = {name: round(n, 3) for name, n in amount.scalars.items()}
    return result
