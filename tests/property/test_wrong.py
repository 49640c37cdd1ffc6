"""Wrong variants: a known example that shows one no more is replaced."""

import pytest
from hypothesis import strategies as st

from tests.property import wrong
from tests.property.wrong import assert_caught


def small_only(number: int) -> None:
    assert number < 1000


def test_a_known_example_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong, "STALE_AFTER", 0)
    assert_caught(small_only, st.integers(0, 2000), known=(1500,))


def test_a_stale_example_is_reported_after_a_long_search(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(small_only, st.integers(0, 2000), known=(1,))
    monkeypatch.setattr(wrong, "STALE_AFTER", 0)
    with pytest.raises(AssertionError, match=r"known=\(1,\) shows .* replace it by \(\d+,\)"):
        assert_caught(small_only, st.integers(0, 2000), known=(1,))


def test_a_variant_that_is_not_caught_fails() -> None:
    with pytest.raises(pytest.fail.Exception):
        assert_caught(small_only, st.integers(0, 999), known=(1,))
