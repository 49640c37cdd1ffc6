"""The kernels as plain Python: slow, but arrays are checked for their bounds, and a line can be
wrong on purpose."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np

import stowplan.columns.engine

SOURCE = Path(stowplan.columns.engine.__file__).with_name("kernels.py")
_COMPILER = "import numba\n"
_NO_COMPILER = """
class numba:
    __version__ = "1.0"
    njit = staticmethod(lambda **options: lambda function: function)
"""


def plain(*changes: tuple[str, str]) -> ModuleType:
    """The kernels without their compiler. changes: what stands there once, and what instead."""
    text = SOURCE.read_text(encoding="utf-8")
    for old, new in ((_COMPILER, _NO_COMPILER), *changes):
        assert text.count(old) == 1, f"kernels.py has {text.count(old)} of {old!r}, wanted one"
        text = text.replace(old, new)
    module = ModuleType("plain_kernels")
    exec(compile(text, str(SOURCE), "exec"), module.__dict__)
    # Lots are products that run over, which NumPy says of single numbers.
    module.run = np.errstate(over="ignore")(module.run)  # type: ignore[attr-defined]
    return module
