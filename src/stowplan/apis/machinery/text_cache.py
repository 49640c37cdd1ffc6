"""Caches keyed by text from clients, with bounded memory.

A plain `lru_cache` bounds only the number of entries, and a client may send texts of megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

R = TypeVar("R")

TEXT_MAX = 512
"""Longest text that is cached, in characters; names, quantities and times are shorter."""


def cache_short_texts(size: int) -> Callable[[Callable[[str], R]], Callable[[str], R]]:
    """Cache the results of a function for its last `size` short texts."""

    def decorated(function: Callable[[str], R]) -> Callable[[str], R]:
        known = lru_cache(maxsize=size)(function)

        @wraps(function)
        def answer(text: str) -> R:
            return known(text) if len(text) <= TEXT_MAX else function(text)

        return answer

    return decorated
