"""Wrong variants: a property is shown to catch them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.soak import found_within

settings.register_profile(
    "wrong",
    parent=settings.get_profile("stowplan"),
    max_examples=found_within(400),
    phases=(Phase.generate,),
    report_multiple_bugs=False,
)


@contextmanager
def caught_at_once() -> Iterator[None]:
    """Expect that a property made in here fails; nobody looks for the plainest example."""
    settings.load_profile("wrong")
    try:
        with pytest.raises(AssertionError):
            yield
    finally:
        settings.load_profile("stowplan")


STALE_AFTER = 60
"""Examples within which another one is found, or the known one has to be replaced: in `make test`
such searches took minutes, and showed nowhere."""


class Caught(BaseException):
    """Not an Exception: Hypothesis lets it through at once, and neither tries nor prints again."""


def assert_caught(
    check: Callable[..., None], *strategies: SearchStrategy[Any], known: tuple[Any, ...] = ()
) -> None:
    """Assert that `check` fails on one of some examples. known: one on which it failed before;
    others are drawn where it does not any more, and after many the new one is named in an
    AssertionError."""
    if known and _fails(check, known):
        return
    tried = 0
    found: tuple[Any, ...] = ()

    @settings(settings.get_profile("wrong"))
    @given(st.tuples(*strategies))
    def look(example: tuple[Any, ...]) -> None:
        nonlocal tried, found
        tried += 1
        if _fails(check, example):
            found = example
            raise Caught

    with pytest.raises(Caught):
        look()
    assert not known or tried <= STALE_AFTER, (
        f"known={known!r} shows the wrong variant no more; replace it by {found!r}"
    )


def _fails(check: Callable[..., None], example: tuple[Any, ...]) -> bool:
    try:
        check(*example)
    except AssertionError:
        return True
    return False
