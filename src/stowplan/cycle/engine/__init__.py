"""The engine: pods in classes, and runs of them placed by compiled kernels.

The answers are those of the NumPy walk, which goes on deciding whatever no class can be made of.
"""

from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.cycle.engine.engine import Engine

__all__ = ["Engine", "EnginePodClass"]
