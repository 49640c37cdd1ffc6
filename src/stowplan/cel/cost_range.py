"""Ranges of sizes and costs, in unsigned integers of 64 bits that stop at their highest.

Source: cel-go v0.26, checker/cost.go (SizeEstimate, CostEstimate).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stowplan.cel.values import UINT_MAX


class CostRange(NamedTuple):
    """Lowest and highest size (characters, bytes, items) or cost."""

    low: int
    high: int

    def plus(self, other: CostRange) -> CostRange:
        """The sum."""
        return CostRange(min(self.low + other.low, UINT_MAX), min(self.high + other.high, UINT_MAX))

    def times(self, other: CostRange) -> CostRange:
        """The product."""
        return CostRange(min(self.low * other.low, UINT_MAX), min(self.high * other.high, UINT_MAX))

    def scaled(self, factor: float) -> CostRange:
        """The product with a number, rounded up."""
        return CostRange(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: CostRange) -> CostRange:
        """The range over both."""
        return CostRange(min(self.low, other.low), max(self.high, other.high))


def _scaled(number: int, factor: float) -> int:
    product = float(number) * factor
    return UINT_MAX if product >= 2.0**64 else min(math.ceil(product), UINT_MAX)


def exactly(number: int) -> CostRange:
    """A range of one number."""
    return CostRange(number, number)


UNKNOWN = CostRange(0, UINT_MAX)
FREE = exactly(0)
ONE = exactly(1)
