"""Stowplan: a Kubernetes scheduler in Python.

The public surface is `simulate` and `evaluate` here, `stowplan.framework` for plugins and
`stowplan.testing` for their tests; everything else may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stowplan._version import __version__

if TYPE_CHECKING:
    from stowplan.sim.evaluate import evaluate
    from stowplan.sim.simulate import simulate

__all__ = ["__version__", "evaluate", "simulate"]

# Loaded when first asked for, so that `import stowplan` and the light commands stay light.
_WHERE = {"simulate": "stowplan.sim.simulate", "evaluate": "stowplan.sim.evaluate"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'stowplan' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
