"""The engine: groups pods into classes and places runs of them with compiled kernels.

Its answers equal those of the NumPy walk, which decides all pods that no class can represent.
"""

from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.cycle.engine.engine import Engine

__all__ = ["Engine", "EnginePodClass"]
