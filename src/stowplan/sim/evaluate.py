"""evaluate(): scheduling questions in bulk, a line each, answered a line each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from stowplan.framework import ConfigError, ContractError
from stowplan.objects.codec import DecodeError
from stowplan.objects.quantity import QuantityError
from stowplan.sim import attempts, queue_cases, queue_scripts, sequences
from stowplan.sim.input_error import InputError

FORMATS: dict[str, Callable[[bytes], tuple[str, dict[str, Any]]]] = {}
"""What a line may be read as -> a function from the line to (id, result)."""


def _attempt(line: bytes) -> tuple[str, dict[str, Any]]:
    case = attempts.read_case(line)
    return case.id, attempts.answer(case)


def _sequence(line: bytes) -> tuple[str, dict[str, Any]]:
    case = sequences.read_case(line)
    return case.id, sequences.answer(case)


def _queue(line: bytes) -> tuple[str, dict[str, Any]]:
    case = queue_cases.read_case(line)
    return case.id, queue_scripts.answer(case)


FORMATS["attempt"] = _attempt
FORMATS["sequence"] = _sequence
FORMATS["queue"] = _queue


def evaluate(
    lines: Iterable[bytes | str], *, form: str = "attempt", source: str = "input"
) -> Iterator[dict[str, Any]]:
    """Answer each line; yields `{"id": ..., "result": {...}}` in the order of the lines.

    form: what a line holds; `attempt` is a cluster and one pending pod. source: named in errors.
    Blank lines are passed over. Raises InputError naming the line that cannot be answered.
    """
    if form not in FORMATS:
        raise InputError(source, "--as", form, ", ".join(FORMATS))
    for number, line in enumerate(lines, start=1):
        text = line.encode() if isinstance(line, str) else line
        if not text.strip():
            continue
        try:
            name, result = FORMATS[form](text)
        except (DecodeError, ConfigError, ContractError, QuantityError, ValueError) as problem:
            raise InputError.at(source, f"line {number}", problem) from problem
        except RecursionError:
            place = f"line {number}"
            raise InputError(source, place, "deeper nesting", "nesting that objects have") from None
        yield {"id": name, "result": result}


def encoded(answer: dict[str, Any]) -> bytes:
    """An answer as a line of JSON, with its newline."""
    return msgspec.json.encode(answer) + b"\n"
