"""Types of arrays, growth by doubling, and look-ups into arrays.

Doubling makes the cost of adding a row or a resource constant on average.
"""

from __future__ import annotations

import mmap
import platform
from collections.abc import Collection, Mapping
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CAPACITY_MIN = 8
UNRESERVED = getattr(
    mmap,
    "MAP_NORESERVE",
    0x4000 if platform.machine() in ("x86_64", "aarch64", "riscv64", "s390x") else 0,
)
"""Linux's MAP_NORESERVE, which older versions of Python do not name; 0 where it is another number.
Without it, Linux refuses more than the machine's memory, most of which would never be written."""

COLUMNS_MANY = 64
"""With more resources than this most columns have few amounts, and are kept by pages."""


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
    # Zeros take no memory before they are written.
    larger = np.full(shape, fill, array.dtype) if fill else np.zeros(shape, array.dtype)
    larger[tuple(slice(0, have) for have in array.shape)] = array
    return larger


def grow_columns(table: Ints, n_columns: int, n_rows: int) -> Ints:
    """`table`, int64 (n_columns, n_rows), grown as by `grow`.

    Of many columns most are those of resources that few rows have. Memory is then taken for pages
    that were written, 512 rows of a column each; so writers leave alone what is 0 already.
    """
    have_columns, have_rows = table.shape
    if have_columns >= n_columns and have_rows >= n_rows:
        return table
    if max(n_columns, 2 * have_columns) <= COLUMNS_MANY:
        return grow(table, (n_columns, n_rows))
    shape = tuple(
        have if have >= want else max(want, 2 * have, CAPACITY_MIN)
        for have, want in ((have_columns, n_columns), (have_rows, n_rows))
    )
    larger = zero_columns(shape)
    rows = np.arange(have_rows)
    for column in range(have_columns):
        copy_changed(larger[column], table[column], rows)
    return larger


def zero_columns(shape: tuple[int, ...]) -> Ints:
    """int64, zeros; of many columns without memory for pages that are not written."""
    if shape[0] <= COLUMNS_MANY or not shape[1]:
        return np.zeros(shape, dtype=np.int64)
    n_bytes = shape[0] * shape[1] * np.dtype(np.int64).itemsize
    if not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(shape, dtype=np.int64)
    # Shared pages would be taken when they are read, and NumPy asks for large ones, which a single
    # amount takes.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | UNRESERVED
    pages = mmap.mmap(-1, n_bytes, flags=flags)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype=np.int64).reshape(shape)


def copy_changed(target: Ints, source: Ints, rows: Ints) -> None:
    """Copy the elements that differ. rows: of these; target, source: int64 (at least max(rows))."""
    values = source[rows]
    differs = np.flatnonzero(target[rows] != values)
    if differs.size:
        target[rows[differs]] = values[differs]


def move_row(table: Ints, source: int, target: int) -> None:
    """Move the amounts of a row to another and leave zeros; elements that stay the same are not
    written. table: int64 (n_resources, n_rows_max)."""
    amounts = table[:, source].copy()
    held = np.flatnonzero(amounts)
    table[held, source] = 0
    if source != target:
        differs = np.flatnonzero(table[:, target] != amounts)
        table[differs, target] = amounts[differs]


def numbers_of(keys: Collection[Any], numbers: Mapping[Any, int]) -> Ints:
    """int64 (n_keys,): the number of each key, -1 for those without one; found without a call of a
    function for each."""
    return np.fromiter(map(numbers.get, keys, repeat(-1)), np.int64, len(keys))
