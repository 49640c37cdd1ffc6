"""Types of arrays, and growth by doubling.

Doubling makes the cost of adding a row or a resource constant on average.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CAPACITY_MIN = 8


def grow(array: NDArray[Any], wanted: tuple[int, ...], fill: int = 0) -> NDArray[Any]:
    """`array` itself if it has the wanted shape, else a copy at least that large.

    An axis that grows at least doubles; new elements are `fill`.
    """
    if all(have >= want for have, want in zip(array.shape, wanted, strict=True)):
        return array
    shape = tuple(
        have if have >= want else max(want, 2 * have, CAPACITY_MIN)
        for have, want in zip(array.shape, wanted, strict=True)
    )
    larger = np.full(shape, fill, dtype=array.dtype)
    larger[tuple(slice(0, have) for have in array.shape)] = array
    return larger
