"""Hypothesis strategies: nodes, pods, clusters and histories, as `generate` makes them.

Needs the extra `stowplan[testing]`. A failing example shrinks towards the plainest objects.
"""

from __future__ import annotations

from typing import Any

from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing import generate, history
from stowplan.testing.dice import number
from stowplan.testing.generate import Scene
from stowplan.testing.history import Step

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn
except ImportError as missing:
    raise ImportError(
        "stowplan.testing.strategies needs Hypothesis: pip install 'stowplan[testing]'"
    ) from missing


class Drawn:
    """Dice whose throws Hypothesis chooses and shrinks."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def integers(self, low: int, high: int) -> Any:
        """A whole number from `low` to `high` - 1."""
        return self._draw(st.integers(low, high - 1))


@st.composite
def nodes(draw: DrawFn, name: str = "n0") -> Node:
    """A node of this name."""
    return generate.node(Drawn(draw), name)


@st.composite
def pods(draw: DrawFn, name: str = "p0", on: str = "") -> Pod:
    """A pod of this name, bound to a node or to none."""
    return generate.pod(Drawn(draw), name, on=on)


@st.composite
def clusters(
    draw: DrawFn, n_nodes_max: int = 4, n_pods_max: int = 4, n_pending_max: int = 2
) -> Scene:
    """A cluster up to this size, with pods to ask about."""
    dice = Drawn(draw)
    return generate.scene(
        dice,
        n_nodes=number(dice, 0, n_nodes_max),
        n_pods=number(dice, 0, n_pods_max),
        n_pending=number(dice, 1, n_pending_max),
    )


@st.composite
def histories(draw: DrawFn, n_steps_max: int = 12) -> list[Step]:
    """What happens to a cluster that is empty at first."""
    dice = Drawn(draw)
    return history.history(dice, number(dice, 1, n_steps_max))
