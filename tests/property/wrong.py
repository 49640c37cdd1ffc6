"""Wrong variants: each property is shown to notice a realistic mistake."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy


def assert_caught(check: Callable[..., None], *strategies: SearchStrategy[Any]) -> None:
    """Assert that `check` fails on some example; nothing is shrunk or kept."""
    # Looking for one failure, not explaining it.
    looking = settings(phases=(Phase.generate,), database=None, print_blob=False)
    with pytest.raises(AssertionError):
        looking(given(*strategies)(check))()
