"""Wrong variants: each property is shown to notice a realistic mistake."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


def assert_caught(check: Callable[..., None], *strategies: SearchStrategy[Any]) -> None:
    """Assert that `check` fails on one of as many examples as a property is tried on."""
    caught: list[AssertionError] = []

    @given(st.tuples(*strategies))
    def look(example: tuple[Any, ...]) -> None:
        if not caught:
            try:
                check(*example)
            except AssertionError as failure:
                caught.append(failure)

    look()
    assert caught, "no example showed the mistake"
