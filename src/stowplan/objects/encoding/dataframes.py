"""Results as a DataFrame of pandas or polars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

LIBRARIES = ("pandas", "polars")


def to_dataframe(columns: Mapping[str, Sequence[Any]], library: str = "") -> Any:
    """A DataFrame with these columns.

    library: `pandas` or `polars`; "" takes the first that is installed. Raises ImportError where
    none is, and ValueError for any other library.
    """
    if library and library not in LIBRARIES:
        allowed = ", ".join(LIBRARIES)
        raise ValueError(f"library: Invalid value: {library!r}: expected one of {allowed}")
    wanted = (library,) if library else LIBRARIES
    for name in wanted:
        try:
            module = import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name != name:
                # It is installed, and lacks a dependency.
                raise
            continue
        return module.DataFrame(dict(columns))
    raise ImportError(f"to_frame() needs {' or '.join(wanted)}: pip install {wanted[0]}")
