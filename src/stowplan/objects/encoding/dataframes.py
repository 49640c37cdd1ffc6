"""Frames: results as a DataFrame of pandas or polars, whichever is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

LIBRARIES = ("pandas", "polars")


def to_dataframe(columns: Mapping[str, Sequence[Any]], library: str = "") -> Any:
    """A DataFrame with these columns.

    library: `pandas` or `polars`; "" takes the first that is installed. Raises ImportError where
    it is not, and ValueError for any other library.
    """
    if library and library not in LIBRARIES:
        raise ValueError(f"library: got {library!r}, wanted one of {', '.join(LIBRARIES)}")
    wanted = (library,) if library else LIBRARIES
    for name in wanted:
        try:
            module = import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name != name:
                # It is there, and lacks something itself.
                raise
            continue
        return module.DataFrame(dict(columns))
    raise ImportError(f"to_frame() needs {' or '.join(wanted)}: pip install {wanted[0]}")
