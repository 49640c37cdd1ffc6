"""Kernel loading: Numba is imported only once compiling pays off."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Protocol, cast

import numpy as np

from stowplan.columns.engine.preemption_arrays import FREE, N_STATE, REQUESTS

COMPILE_ROWS_MIN = 100_000_000
"""Number of evaluated rows after which compiling (some seconds per kernel) pays off. It happens
once per machine; Numba caches the result on disk."""

_KERNELS = "stowplan.columns.engine.kernels"
_CARD_KERNELS = "stowplan.columns.engine.card_kernels"
_PREEMPTION_KERNELS = "stowplan.columns.engine.preemption_kernels"


class EngineMode(Enum):
    """AUTO: NumPy kernels until compiling pays off. COMPILED: compiled kernels from the first pod
    on, NumPy's without Numba. WALK: no kernels, every pod is decided alone."""

    AUTO = "auto"
    COMPILED = "compiled"
    WALK = "walk"


class Kernels(Protocol):
    """Places runs of pods: the modules `kernels` and `numpy_kernels`, or `ExportedKernels`."""

    @property
    def run(self) -> Callable[..., int]:
        """See `kernels.run`."""


class CompiledKernels(Protocol):
    """Compiles the kernels beside this process."""

    def start(self) -> None:
        """Load compiled kernels that are on disk; takes a moment."""

    def poll(self) -> None:
        """Begin to compile kernels that `start` did not find, and load them when that has finished.
        Called after decisions, so that the first does not share the processor."""


_exported: list[Kernels] = []
_compiling_elsewhere: list[object] = []


def use_exported(kernels: Kernels) -> None:
    """Take these compiled kernels from now on, unless Numba's are loaded."""
    _exported[:] = [kernels]


def note_compilation(owner: object, *, is_under_way: bool) -> None:
    """Note that another process compiles the kernels, so that this one does not, or that it has
    ended. owner: what follows that process."""
    if owner in _compiling_elsewhere:
        _compiling_elsewhere.remove(owner)
    if is_under_way:
        _compiling_elsewhere.append(owner)


def is_compiled_elsewhere() -> bool:
    """True while another process compiles the kernels for this one."""
    return bool(_compiling_elsewhere)


def is_loaded() -> bool:
    """True if this process has already loaded compiled kernels."""
    return bool(_exported) or _KERNELS in sys.modules


def load_kernels() -> Kernels | None:
    """Load the compiled kernels; None, with a warning, if Numba is missing or too old."""
    if _exported and _KERNELS not in sys.modules:
        return _exported[0]
    try:
        return cast(Kernels, importlib.import_module(_KERNELS))
    except ImportError as missing:
        warnings.warn(
            f"Numba is not available ({missing}): scheduling runs on NumPy, with the same results"
            " but slower; requires Numba 0.61 or newer",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def load_card_kernels() -> ModuleType:
    """Load the compiled kernels for GPU cards, where those of `load_kernels` are loaded."""
    return importlib.import_module(_CARD_KERNELS)


def load_preemption_kernel() -> Callable[..., int] | None:
    """Load the kernel that plans preemptors, or compile it, which takes seconds; None where the
    kernels of `load_kernels` are exported ones, which run without Numba."""
    if _KERNELS not in sys.modules:
        return None
    run: Callable[..., int] = importlib.import_module(_PREEMPTION_KERNELS).run
    return run


def loaded_preemption_kernel() -> Callable[..., int] | None:
    """The kernel that plans preemptors where this process has already loaded or compiled it; None
    otherwise, so that no call of the scheduler waits for it."""
    module = sys.modules.get(_PREEMPTION_KERNELS)
    # While another thread imports the module, it has no kernel yet.
    run = getattr(module, "run", None)
    return run if run is not None and run.signatures else None


def warm_preemption_kernel() -> None:
    """Load the kernel that plans preemptors, or compile it, by a call without preemptors."""

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)

    run: Callable[..., int] = importlib.import_module(_PREEMPTION_KERNELS).run
    pods, table = zeros(REQUESTS + 1, 1), zeros(FREE + 2, 1)
    run(
        zeros(0), zeros(1, 1), table, pods, zeros(1, 8), zeros(1, 1, N_STATE), zeros(1, 1),
        zeros(1), zeros(0), zeros(1, 1), zeros(1, 2),
    )  # fmt: skip
