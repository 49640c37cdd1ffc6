"""Node churn: nodes that leave and come back at random."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import Node
from stowplan.simulation.cluster.cluster_api import ClusterApi


class Churn(msgspec.Struct, frozen=True):
    """up_s, down_s: mean time that a node is up and down, in seconds; exponentially distributed."""

    up_s: float
    down_s: float


class NodeChurnController:
    """Removes and re-adds nodes of a cluster, while `is_active`."""

    def __init__(self, cluster: ClusterApi, churn: Churn, rng: np.random.Generator) -> None:
        self._cluster = cluster
        self._churn = churn
        self._rng = rng
        self._away: dict[str, Node] = {}
        self.is_active = True
        self.count = 0
        self.on_left: Callable[[str], None] = _nothing
        for name in list(cluster.nodes):
            self._stays(name)

    def __len__(self) -> int:
        """Number of nodes that are down."""
        return len(self._away)

    def _stays(self, name: str) -> None:
        self._cluster.event_queue.after(self._random_ns(self._churn.up_s), self._leave, name)

    def _random_ns(self, mean_s: float) -> int:
        return round(self._rng.exponential(mean_s) * SECOND)

    def _leave(self, name: str) -> None:
        if not self.is_active:
            return
        cluster = self._cluster
        self._away[name] = cluster.nodes[name]
        self.count += 1
        cluster.drop_node(name)
        cluster.clear_node(name, "node left")
        cluster.event_queue.after(self._random_ns(self._churn.down_s), self._return, name)

    def _return(self, name: str) -> None:
        self._cluster.put_node(self._away.pop(name))
        self._stays(name)


def _nothing(name: str) -> None:
    """Default callback: does nothing."""
