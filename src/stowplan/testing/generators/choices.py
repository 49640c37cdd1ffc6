"""Random choices, each made of `integers` alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class RandomSource(Protocol):
    """Source of choices: a NumPy generator, or a Hypothesis draw."""

    def integers(self, low: int, high: int) -> Any:
        """A whole number from `low` to `high` - 1."""


def random_int(rng: RandomSource, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    return int(rng.integers(low, high + 1))


def pick(rng: RandomSource, options: Sequence[T]) -> T:
    """One of `options`; a draw of 0 is the first."""
    return options[random_int(rng, 0, len(options) - 1)]


def chance(rng: RandomSource, one_in: int) -> bool:
    """True with probability 1 / n; a draw of 0 is False."""
    return random_int(rng, 1, one_in) == one_in


def sample(rng: RandomSource, options: Sequence[T], most: int) -> tuple[T, ...]:
    """Up to `most` of `options`, each at most once, in the order of the draws."""
    left = list(options)
    n_wanted = random_int(rng, 0, min(most, len(left)))
    return tuple(left.pop(random_int(rng, 0, len(left) - 1)) for _ in range(n_wanted))
