"""nodeorder: a weighted sum of scores of kube-scheduler.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/nodeorder/nodeorder.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.batch.queue_models.volcano.pod_rules import NodeScoreUse, RowScores
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import integer
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Floats

WEIGHTS = {
    "leastrequested.weight": 1,
    "mostrequested.weight": 0,
    "balancedresource.weight": 1,
    "nodeaffinity.weight": 2,
    "podaffinity.weight": 2,
    "tainttoleration.weight": 3,
    "podtopologyspread.weight": 2,
    "imagelocality.weight": 1,
}
"""Argument -> weight where it is not given."""


class VolcanoNodeOrder(VolcanoPlugin):
    """Scores."""

    name = "nodeorder"

    def open(self, session: VolcanoSession) -> None:
        """Read the weights."""
        weights = {key: integer(self.arguments, key, default) for key, default in WEIGHTS.items()}
        uses = [NodeScoreUse(key, weight) for key, weight in weights.items() if weight]
        self._session = session
        self._scores = session.rules.scores(uses)

    def score_column(self, task: VolcanoTask) -> RowScores | None:
        """The weighted sums by row."""
        return self._scores.column(task)

    def batch_node_order(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats | None:
        """float64 (n_nodes,): the weighted sums."""
        return self._scores.totals(task, self._session.rows_of(nodes))
