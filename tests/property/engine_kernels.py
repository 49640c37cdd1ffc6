"""The kernels as plain Python: slow, but arrays are checked for their bounds, and a line can be
wrong on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

import stowplan.columns.engine

SOURCE = Path(stowplan.columns.engine.__file__).with_name("kernels.py")
NUMPY_SOURCE = SOURCE.with_name("numpy_kernels.py")
CARD_SOURCE = SOURCE.with_name("card_kernels.py")
PREEMPTION_SOURCE = SOURCE.with_name("preemption_kernels.py")
_COMPILER = "import numba\n"
_NO_COMPILER = """
class numba:
    __version__ = "1.0"
    njit = staticmethod(lambda **options: lambda function: function)
"""


def plain(*changes: tuple[str, str]) -> ModuleType:
    """The kernels without their compiler. changes: what stands there once, and what instead."""
    module = _changed(SOURCE, ((_COMPILER, _NO_COMPILER), *changes))
    # Lots are products that run over, which NumPy says of single numbers.
    module.run = np.errstate(over="ignore")(module.run)  # type: ignore[attr-defined]
    return module


def plain_card_kernels(*changes: tuple[str, str]) -> ModuleType:
    """The card kernels, as for `plain`."""
    module = _changed(CARD_SOURCE, ((_COMPILER, _NO_COMPILER), *changes))
    module.run = np.errstate(over="ignore")(module.run)  # type: ignore[attr-defined]
    return module


def plain_preemption_kernel(*changes: tuple[str, str]) -> ModuleType:
    """The preemption kernels, as for `plain`."""
    return _changed(PREEMPTION_SOURCE, ((_COMPILER, _NO_COMPILER), *changes))


def changed_numpy_kernels(*changes: tuple[str, str]) -> ModuleType:
    """The NumPy kernels with changes, as for `plain`."""
    return _changed(NUMPY_SOURCE, changes)


def _changed(source: Path, changes: Sequence[tuple[str, str]]) -> ModuleType:
    text = source.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, f"{source.name} has {text.count(old)} of {old!r}, wanted one"
        text = text.replace(old, new)
    module = ModuleType(f"changed_{source.stem}")
    exec(compile(text, str(source), "exec"), module.__dict__)
    return module
