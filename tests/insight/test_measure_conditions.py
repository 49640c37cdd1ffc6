"""Conditions of --fail-if: their grammar, what holds, and errors."""

from __future__ import annotations

import pytest

from stowplan.inputs.input_error import InputError
from stowplan.insight.measure_conditions import parse_condition

MEASURES = {"pending": 3.0, "lost": 0.0, "cpu.percent": 87.5, "nvidia.com/gpu.percent": 50.0}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("pending > 2", True),
        ("pending>3", False),
        ("pending >= 3", True),
        ("pending < 3", False),
        ("pending <= 3", True),
        ("pending == 3", True),
        ("pending != 3", False),
        ("cpu.percent > 87.4 and lost == 0", True),
        ("cpu.percent > 90 and lost == 0", False),
        ("cpu.percent > 90 or lost == 0", True),
        # `and` binds closer: (false and true) or true, and true or (true and false).
        ("lost > 0 and pending > 0 or pending == 3", True),
        ("pending == 3 or pending > 0 and lost > 0", True),
        ("nvidia.com/gpu.percent == 5e1", True),
        ("pending > -1", True),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    assert parse_condition(text).holds(MEASURES) is holds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "Required value: expected a measure"),
        ("pending", "after 'pending': Required value: expected one of < <= > >= == !="),
        ("pending = 3", "--fail-if: Invalid value: '= 3': expected MEASURE OP NUMBER"),
        ("pending >", "after 'pending >': Required value: expected a number"),
        ("pending > x", "after 'pending >': Invalid value: 'x': expected a number"),
        ("pending > inf", "expected a number"),
        ("pending > 3 lost > 0", "expected `and`, `or` or the end"),
        ("pending > 3 and", "expected a measure"),
        ("and > 3", "Invalid value: 'and': expected a measure"),
        ("pending and 3", "expected one of < <= > >= == !="),
    ],
)
def test_invalid_conditions(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_condition(text)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_measure_lists_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        parse_condition("pendng > 3").holds(MEASURES)
    text = str(caught.value)
    assert "unknown measure 'pendng'" in text
    assert "pending, lost, cpu.percent" in text
    assert "did you mean 'pending'?" in text
