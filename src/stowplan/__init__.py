"""Stowplan: a Kubernetes scheduler in Python.

The public surface is `simulate`, `explain` and `evaluate` here with the errors they raise,
`stowplan.framework` for plugins and `stowplan.testing` for their tests; everything else may
change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stowplan._version import __version__

if TYPE_CHECKING:
    from stowplan.framework.problems import ConfigError, ContractError
    from stowplan.sim.cluster import Cluster, read_cluster
    from stowplan.sim.evaluate import evaluate
    from stowplan.sim.explain import explain
    from stowplan.sim.input_error import InputError
    from stowplan.sim.simulate import simulate

__all__ = [
    "Cluster",
    "ConfigError",
    "ContractError",
    "InputError",
    "__version__",
    "evaluate",
    "explain",
    "read_cluster",
    "simulate",
]

# Loaded when first asked for, so that `import stowplan` and the light commands stay light.
_WHERE = {
    "Cluster": "stowplan.sim.cluster",
    "ConfigError": "stowplan.framework.problems",
    "ContractError": "stowplan.framework.problems",
    "InputError": "stowplan.sim.input_error",
    "evaluate": "stowplan.sim.evaluate",
    "explain": "stowplan.sim.explain",
    "read_cluster": "stowplan.sim.cluster",
    "simulate": "stowplan.sim.simulate",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'stowplan' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
