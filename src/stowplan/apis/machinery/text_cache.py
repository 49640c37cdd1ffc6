"""Caches of what is computed from a client's text; their memory has a bound in bytes.

A plain `lru_cache` bounds only the number of entries, and a client may send texts of megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

R = TypeVar("R")

TEXT_MAX = 512
"""Characters of a text that is remembered; names, quantities and times have fewer."""


def cache_short_texts(size: int) -> Callable[[Callable[[str], R]], Callable[[str], R]]:
    """Remember the answers of a function for its latest `size` short texts."""

    def decorated(function: Callable[[str], R]) -> Callable[[str], R]:
        known = lru_cache(maxsize=size)(function)

        @wraps(function)
        def answer(text: str) -> R:
            return known(text) if len(text) <= TEXT_MAX else function(text)

        return answer

    return decorated
