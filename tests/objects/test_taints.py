"""Which taints a toleration covers: the table of the API, operator by operator."""

import pytest

from stowplan.objects.taints import is_tolerated, tolerates
from tests.plugins.clusters import taint, toleration

TAINT = taint("gpu=a100:NoSchedule")


@pytest.mark.parametrize(
    ("operator", "text", "covers"),
    [
        ("Equal", "gpu=a100:NoSchedule", True),
        ("", "gpu=a100:NoSchedule", True),
        ("Equal", "gpu=a100", True),
        ("Equal", "gpu=a100:NoExecute", False),
        ("Equal", "gpu=h100", False),
        ("Equal", "cpu=a100", False),
        # An empty key still compares the value.
        ("Equal", "=a100", True),
        ("Equal", "", False),
        ("Exists", "", True),
        ("Exists", "gpu", True),
        ("Exists", "gpu=ignored", True),
        ("Exists", "cpu", False),
        ("Exists", ":NoExecute", False),
        ("In", "gpu=a100", False),
        ("Lt", "gpu=a100", False),
    ],
)
def test_operators(operator: str, text: str, covers: bool) -> None:
    assert tolerates(toleration(operator, text), TAINT) is covers
    assert tolerates(toleration(operator, text), TAINT, comparison_operators=True) is covers


MAX, MIN = "9223372036854775807", "-9223372036854775808"


@pytest.mark.parametrize(
    ("have", "operator", "bound", "covers"),
    [
        ("4", "Lt", "5", True),
        ("5", "Lt", "5", False),
        ("6", "Gt", "5", True),
        ("5", "Gt", "5", False),
        ("-6", "Lt", "-5", True),
        ("0", "Gt", MIN, True),
        ("0", "Lt", MAX, True),
        # Only canonical int64 numbers compare.
        ("0", "Lt", "9223372036854775808", False),
        ("0", "Gt", "-9223372036854775809", False),
        ("04", "Lt", "5", False),
        ("4", "Lt", "+5", False),
        ("-0", "Lt", "5", False),
        ("4", "Lt", "5.0", False),
        ("", "Lt", "5", False),
        ("٤", "Lt", "5", False),
        ("4", "Lt", "", False),
    ],
)
def test_comparisons(have: str, operator: str, bound: str, covers: bool) -> None:
    have_taint, one = taint(f"tier={have}:NoExecute"), toleration(operator, f"tier={bound}")
    assert tolerates(one, have_taint, comparison_operators=True) is covers
    assert not tolerates(one, have_taint, comparison_operators=False)


def test_any_toleration_is_enough() -> None:
    some = [toleration("Exists", "cpu"), toleration("Exists", "gpu")]
    assert is_tolerated(TAINT, some)
    assert not is_tolerated(TAINT, some[:1])
    assert not is_tolerated(TAINT, [])
