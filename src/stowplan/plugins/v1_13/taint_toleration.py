"""PodToleratesNodeTaints and TaintTolerationPriority: taints that the pod does not tolerate.

Source: Kubernetes v1.13, predicates.PodToleratesNodeTaints and priorities/taint_toleration.go.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.functions.priorities import PRIORITY_MAX, normalize_scores
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.taints import HARD_EFFECTS, SOFT_EFFECTS, is_untolerated
from stowplan.plugins.taint_toleration import tolerations_signature


class PodToleratesNodeTaints:
    """Filter on NoSchedule and NoExecute taints."""

    name = "PodToleratesNodeTaints"
    declaration = Plugin(name=name, reads=(), row_local=True)
    REJECTED = unresolvable("node(s) had taints that the pod didn't tolerate")

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where the pod tolerates every hard taint."""
        return (
            self.REJECTED
            if any(is_untolerated(t, pod.tolerations, HARD_EFFECTS) for t in node.taints)
            else OK
        )

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        repelled = nodes.taints.count_where(
            lambda t: is_untolerated(t, pod.tolerations, HARD_EFFECTS), rows
        )
        return np.equal(repelled, 0)

    def signature(self, pod: Pod) -> object:
        """What the tolerations cover."""
        return tolerations_signature(pod)


class TaintTolerationPriority:
    """Score by PreferNoSchedule taints: the fewest that the pod does not tolerate score 10."""

    name = "TaintTolerationPriority"
    declaration = Plugin(name=name, reads=(), row_local=True)

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """The soft taints that the pod does not tolerate."""
        return sum(is_untolerated(t, pod.tolerations, SOFT_EFFECTS) for t in node.taints)

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        return nodes.taints.count_where(
            lambda t: is_untolerated(t, pod.tolerations, SOFT_EFFECTS), rows
        )

    def normalize_score(self, scores: Ints) -> Ints:
        """int64 (n_rows,) in [0, 10]: shares of the highest count, reversed."""
        return normalize_scores(scores, PRIORITY_MAX, reverse=True)

    def signature(self, pod: Pod) -> object:
        """What the tolerations cover."""
        return tolerations_signature(pod)
