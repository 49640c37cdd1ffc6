"""Churn: nodes that leave and come back, by the dice."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import Node
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster


class Churn(msgspec.Struct, frozen=True):
    """up_s, down_s: how long a node stays, and stays away, on average; both are exponential."""

    up_s: float
    down_s: float


class NodeChurnController:
    """Lets nodes of a world leave and come back, until it is told to stop."""

    def __init__(self, world: SimulatedCluster, churn: Churn, rng: np.random.Generator) -> None:
        self._world = world
        self._churn = churn
        self._rng = rng
        self._away: dict[str, Node] = {}
        self.is_active = True
        self.count = 0
        self.on_left: Callable[[str], None] = _nothing
        for name in list(world.nodes):
            self._stays(name)

    def __len__(self) -> int:
        """How many nodes are away."""
        return len(self._away)

    def _stays(self, name: str) -> None:
        self._world.event_queue.after(self._drawn(self._churn.up_s), self._leave, name)

    def _drawn(self, mean_s: float) -> int:
        return round(self._rng.exponential(mean_s) * SECOND)

    def _leave(self, name: str) -> None:
        if not self.is_active:
            return
        world = self._world
        self._away[name] = world.nodes[name]
        self.count += 1
        world.drop_node(name)
        world.clear_node(name, "node left")
        world.event_queue.after(self._drawn(self._churn.down_s), self._return, name)

    def _return(self, name: str) -> None:
        self._world.put_node(self._away.pop(name))
        self._stays(name)


def _nothing(name: str) -> None:
    """A node that leaves concerns nobody but its pods."""
