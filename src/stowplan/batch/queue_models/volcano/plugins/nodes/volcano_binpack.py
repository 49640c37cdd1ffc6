"""binpack: nodes that are used most come first.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/binpack/binpack.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import integer, resource_weights
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Floats


class VolcanoBinpack(VolcanoPlugin):
    """Weighted use of the requested resources."""

    name = "binpack"
    scores_by_node = True

    def open(self, session: VolcanoSession) -> None:
        """Read the weights."""
        self._weight = integer(self.arguments, "binpack.weight", 1)
        self._weights = resource_weights(self.arguments, "binpack")
        if self._weight == 0:
            self.silent.add("node_order")

    def node_order(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats:
        """float64 (n_nodes,): up to 100 times the weight."""
        shares = [used_share(task.request, node, self._weights) for node in nodes]
        return np.array(shares, dtype=np.float64) * float(100 * self._weight)


def used_share(request: VolcanoAmount, node: VolcanoNode, weights: Mapping[str, int]) -> float:
    """Weighted mean of the shares of resources in use with the request; 0 if one is exceeded."""
    total, weight_sum = 0.0, 0
    for name in request.names():
        if name not in weights:
            continue
        weight, whole = weights[name], node.allocatable.get(name)
        if whole != 0 and weight != 0:
            used = request.get(name) + node.used.get(name)
            if used > whole:
                return 0.0
            total += used * weight / whole
        weight_sum += weight
    return total / weight_sum if weight_sum > 0 else total
