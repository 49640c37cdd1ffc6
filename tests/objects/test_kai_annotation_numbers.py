"""Numbers in annotations of users, as Go's parser takes them."""

from __future__ import annotations

import pytest

from stowplan.objects.kai.annotation_numbers import decimal, unsigned_number


@pytest.mark.parametrize(
    ("text", "want"),
    [("2", 2), ("007", 7), ("", None), (None, None), ("²", None), ("٣", None), ("1_0", None),
     ("-1", None), (" 1", None), ("1.0", None), ("9" * 18, 10**18 - 1), ("9" * 5000, None)],
)  # fmt: skip
def test_whole_numbers(text: str | None, want: int | None) -> None:
    assert unsigned_number(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [("0.5", 0.5), (".25", 0.25), ("1.", 1.0), ("5e-1", 0.5), ("-0.5", -0.5), ("", 0.0),
     (None, 0.0), ("inf", 0.0), ("nan", 0.0), ("1e999", 0.0), ("1e9999", 0.0), ("0_5", 0.0),
     (" 0.5", 0.0), ("half", 0.0)],
)  # fmt: skip
def test_decimals(text: str | None, want: float) -> None:
    assert decimal(text) == want
