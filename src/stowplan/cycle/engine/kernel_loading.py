"""Starting the engine: Numba is imported when there is work worth compiling for, not before."""

from __future__ import annotations

import importlib
import sys
import warnings
from enum import Enum
from types import ModuleType

COMPILE_WORTH_ROWS = 100_000_000
"""With so many rows looked at, kernels would have paid even for being compiled: some seconds each.
That is done once per machine; Numba keeps them on disk."""

_KERNELS = "stowplan.columns.engine.kernels"


class EngineMode(Enum):
    """AUTO: the walk decides until there is enough to do, then the engine. COMPILED: the engine
    from the first pod on. WALK: never the engine."""

    AUTO = "auto"
    COMPILED = "compiled"
    WALK = "walk"


def is_loaded() -> bool:
    """True when somebody in this process has loaded the kernels."""
    return _KERNELS in sys.modules


def load_kernels() -> ModuleType | None:
    """The compiled kernels; None, with a warning, where Numba is missing or too old."""
    try:
        return importlib.import_module(_KERNELS)
    except ImportError as missing:
        warnings.warn(
            f"Numba cannot be used ({missing}), so pods are decided by the NumPy walk: the same"
            " answers, slower; wanted Numba 0.61 or newer",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
