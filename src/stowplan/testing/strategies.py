"""Hypothesis strategies for nodes, pods, clusters and histories, as the generators make them.

Needs the extra `stowplan[testing]`. A failing example shrinks toward the plainest objects.
"""

from __future__ import annotations

from typing import Any

from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing.generators import scenes, table_changes
from stowplan.testing.generators.choices import random_int
from stowplan.testing.generators.scenes import GeneratedCluster
from stowplan.testing.generators.table_changes import Step

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn
except ImportError as missing:
    raise ImportError(
        "stowplan.testing.strategies needs Hypothesis: pip install 'stowplan[testing]'"
    ) from missing


class HypothesisSource:
    """A RandomSource whose draws Hypothesis chooses and shrinks."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def integers(self, low: int, high: int) -> Any:
        """A whole number from `low` to `high` - 1."""
        return self._draw(st.integers(low, high - 1))


@st.composite
def nodes(draw: DrawFn, name: str = "n0") -> Node:
    """A node of this name."""
    return scenes.node(HypothesisSource(draw), name)


@st.composite
def pods(draw: DrawFn, name: str = "p0", on: str = "") -> Pod:
    """A pod of this name, bound to a node or to none."""
    return scenes.pod(HypothesisSource(draw), name, on=on)


@st.composite
def clusters(
    draw: DrawFn, n_nodes_max: int = 4, n_pods_max: int = 4, n_pending_max: int = 2
) -> GeneratedCluster:
    """A cluster up to this size, with pending pods."""
    rng = HypothesisSource(draw)
    return scenes.generate_cluster(
        rng,
        n_nodes=random_int(rng, 0, n_nodes_max),
        n_pods=random_int(rng, 0, n_pods_max),
        n_pending=random_int(rng, 1, n_pending_max),
    )


@st.composite
def histories(draw: DrawFn, n_steps_max: int = 12) -> list[Step]:
    """Changes of an initially empty cluster."""
    rng = HypothesisSource(draw)
    return table_changes.random_steps(rng, random_int(rng, 1, n_steps_max))
