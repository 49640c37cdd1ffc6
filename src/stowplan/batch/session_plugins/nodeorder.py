"""nodeorder: scores the nodes that fit.

Source: kube-batch v0.5, plugins/nodeorder.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stowplan.batch.session import Session, SessionPlugin
from stowplan.batch.session_rules import NodeScoreWeights
from stowplan.batch.state.jobs import TaskInfo
from stowplan.framework.deciders.session_arguments import integer

LEAST_REQUESTED = "leastrequested.weight"
BALANCED_RESOURCE = "balancedresource.weight"
NODE_AFFINITY = "nodeaffinity.weight"
POD_AFFINITY = "podaffinity.weight"


class NodeOrderPlugin(SessionPlugin):
    """A weighted sum of scores."""

    name = "nodeorder"

    def __init__(self, arguments: Mapping[str, str]) -> None:
        super().__init__(arguments)
        self.weights = NodeScoreWeights(
            least_requested=integer(arguments, LEAST_REQUESTED),
            balanced_resource=integer(arguments, BALANCED_RESOURCE),
            node_affinity=integer(arguments, NODE_AFFINITY),
            pod_affinity=integer(arguments, POD_AFFINITY),
        )

    def on_open(self, session: Session) -> None:
        """Register the scores."""
        self._session_state = session.state
        session.hooks.register(
            "node_order", self.name, self.scores, row_kind=session.state.rules.row_kind
        )

    def scores(self, task: TaskInfo, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64 (n_rows,): scores; higher is better."""
        return self._session_state.rules.scores(task, rows, self.weights)
