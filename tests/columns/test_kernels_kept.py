"""Compiled functions work where nothing can be kept on disk, as in a container."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numba
import pytest

from stowplan.columns.engine import kernels


def test_without_a_place_to_keep_them_functions_are_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def nowhere(**options: Any) -> Any:
        asked.append(options.get("cache", False))
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    monkeypatch.setattr(kernels, "numba", SimpleNamespace(njit=nowhere))
    twice = kernels.jit(lambda number: number * 2)
    assert asked == [True, False]
    assert twice(21) == 42
