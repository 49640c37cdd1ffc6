"""nodeorder: a weighted sum of scores of kube-scheduler.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/nodeorder/nodeorder.go.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan.batch.queues.volcano.pod_rules import NodeScoreUse
from stowplan.batch.queues.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queues.volcano.volcano_node import VolcanoNode
from stowplan.batch.queues.volcano.volcano_options import integer
from stowplan.batch.queues.volcano.volcano_session import VolcanoSession
from stowplan.batch.queues.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Floats

SCORES = (
    ("leastrequested.weight", 1, "NodeResourcesFit", "LeastAllocated"),
    ("mostrequested.weight", 0, "NodeResourcesFit", "MostAllocated"),
    ("balancedresource.weight", 1, "NodeResourcesBalancedAllocation", ""),
    ("nodeaffinity.weight", 2, "NodeAffinity", ""),
    ("podaffinity.weight", 2, "InterPodAffinity", ""),
    ("tainttoleration.weight", 3, "TaintToleration", ""),
    ("podtopologyspread.weight", 2, "PodTopologySpread", ""),
    ("imagelocality.weight", 1, "ImageLocality", ""),
)
"""Argument, default weight, plugin of kube-scheduler, and its strategy."""


class VolcanoNodeOrder(VolcanoPlugin):
    """Scores."""

    name = "nodeorder"

    def open(self, session: VolcanoSession) -> None:
        """Read the weights."""
        weights = ((integer(self.arguments, k, w), plugin, kind) for k, w, plugin, kind in SCORES)
        uses = [NodeScoreUse(plugin, weight, kind) for weight, plugin, kind in weights if weight]
        self._scores = session.rules.scores(uses)

    def batch_node_order(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats | None:
        """float64 (n_nodes,): the weighted sums."""
        return self._scores.totals(task, np.array([node.row for node in nodes], dtype=np.int64))
